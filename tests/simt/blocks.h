#pragma once
#include <cstddef>
#include <cstdint>

// The blocks of a launch, and what they may know of each other. Here they run one after the other; on a GPU
// in any order or at once, and one may read what another wrote only if
//   the writer's block:  writes, __threadfence(), atomic on some word
//   the reader's block:  atomic on the same word, __threadfence(), reads
// Threads of a block count as one: what orders them is looked at in shared memory. (What a block knew before
// its fence goes on with its atomic, too.)
//
// And what a launch may know of those before it. Here they have all ended; on a GPU, one that starts early
// (programmatic dependent launch) may run beside all back to the last that did not, and that one, until its
// threads have waited for them.
namespace simt {

// When something was done. A block's writes belong to the fence that comes next in it.
struct BlockClock {
  uint32_t launch = 0, block = 0;
  uint32_t fences = 0;  // of this block so far
};

void begin_launch(bool early, size_t threads_per_block);
void begin_block(uint32_t block);
const BlockClock& block_clock();
void fence();                           // __threadfence()
void atomic_done(const void* address);  // after an atomic operation on memory of any kind
// Whether the running block may read what that block of the launch wrote after `fences` fences.
bool knows(uint32_t block, uint32_t fences);

void thread_waits(unsigned thread);   // for all launches before
bool has_waited(unsigned thread);     // or need not
bool may_still_run(uint32_t launch);  // beside threads of the present one that have not waited
uint64_t early_launches();            // so far

}  // namespace simt
