#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

// What kernels move between device memory and the multiprocessors, counted as a GPU does it: the lanes of a
// warp that run the same load or store ask for sectors of 32 bytes, each of which is sent once. Atomics are
// not counted. Only where every access is seen (access_hooks.cpp).
//
// The lanes run one after the other here, so an instruction is known again by its call site and by how many
// times the lane has been there. Pieces of one vector load, which the compiler took apart, are put together
// again: neighbours within 16 bytes, from another site, one right after the other.
namespace simt {

// Of one kernel, all its launches together.
struct Traffic {
  const void* kernel = nullptr;
  uint64_t launches = 0;
  uint64_t accesses = 0;  // loads and stores of whole warps
  uint64_t sectors = 0;   // that they asked for
  uint64_t ideal = 0;     // that would hold the different bytes of each
  uint64_t distinct = 0;  // different sectors, launch by launch: what has to be moved at least
};

void count_traffic(bool on);     // on: from 0
std::vector<Traffic> traffic();  // in the order of first launches

// From the shim: a launch begins, a block of it ends, a kernel's access to memory of any kind.
void traffic_of_launch(const void* kernel);
void end_traffic_of_block();
void add_traffic(const void* site, const void* address, size_t bytes, bool write);

}  // namespace simt
