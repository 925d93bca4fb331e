#pragma once
#include <cstddef>
#include <cstdint>

// Visibility between the blocks of a launch, which a GPU may run at once. A block may read another block's
// write only if
//   the writer's block: writes, __threadfence(), atomic on some word
//   the reader's block: atomic on the same word, __threadfence(), reads
// Threads of a block count as one. A block's atomic also publishes what was visible before its fence.
// Visibility between launches. On a GPU an early launch (programmatic dependent launch) may run next to all
// launches back to the last one that was not early, until its threads wait.
namespace simt {

// Time of an access; a write belongs to its block's next fence.
struct BlockClock {
  uint32_t launch = 0, block = 0;
  uint32_t fences = 0;
};

void begin_launch(bool early, size_t threads_per_block);
void begin_block(uint32_t block);
const BlockClock& block_clock();
void fence();                           // __threadfence()
void atomic_done(const void* address);  // after any atomic
// Whether the running block may read what `block` wrote after `fences` fences.
bool knows(uint32_t block, uint32_t fences);

void thread_waits(unsigned thread);   // for all earlier launches
bool has_waited(unsigned thread);     // or need not wait
bool may_still_run(uint32_t launch);  // next to unwaited threads of this launch
uint64_t early_launches();

}  // namespace simt
