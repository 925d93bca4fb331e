#pragma once
#include <cstdint>

// The blocks of a launch, and what they may know of each other. Here they run one after the other; on a GPU
// in any order or at once, and one may read what another wrote only if
//   the writer's block:  writes, __threadfence(), atomic on some word
//   the reader's block:  atomic on the same word, __threadfence(), reads
// Threads of a block count as one: what orders them is looked at in shared memory. (What a block knew before
// its fence goes on with its atomic, too.)
namespace simt {

// When something was done. A block's writes belong to the fence that comes next in it.
struct BlockClock {
  uint32_t launch = 0, block = 0;
  uint32_t fences = 0;  // of this block so far
};

void begin_launch();
void begin_block(uint32_t block);
const BlockClock& block_clock();
void fence();                           // __threadfence()
void atomic_done(const void* address);  // after an atomic operation on memory of any kind
// Whether the running block may read what that block of the launch wrote after `fences` fences.
bool knows(uint32_t block, uint32_t fences);

}  // namespace simt
