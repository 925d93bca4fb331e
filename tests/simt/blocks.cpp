#include "tests/simt/blocks.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tests/simt/simt.h"

namespace simt {
namespace {

// Visible fences per block: writes before them can be read.
using Known = std::unordered_map<uint32_t, uint32_t>;

void join(Known& into, const Known& from) {
  for (const auto& [block, fences] : from) into[block] = std::max(into[block], fences);
}

struct Blocks {
  BlockClock clock;
  Known known;                                     // visible to the running block
  Known seen;                                      // visible after its next fence
  Known released;                                  // published by its atomics: known at its last fence
  std::unordered_map<const void*, Known> at_word;  // published by atomics
  bool early = false;
  uint64_t early_launches = 0;
  uint32_t last_in_order = 0;  // the last launch started after the end of all before
  std::vector<bool> waited;    // per thread of the running block
};

Blocks& blocks() {
  static auto& instance = *new Blocks;
  return instance;
}

}  // namespace

void begin_launch(bool early, size_t threads_per_block) {
  Blocks& b = blocks();
  ++b.clock.launch;
  b.at_word.clear();
  b.early = early;
  b.early_launches += early ? 1 : 0;
  if (!early) b.last_in_order = b.clock.launch;
  b.waited.resize(threads_per_block);
}

void begin_block(uint32_t block) {
  Blocks& b = blocks();
  b.clock.block = block;
  b.clock.fences = 0;
  b.known.clear();
  b.seen.clear();
  b.released.clear();
  b.waited.assign(b.waited.size(), !b.early);
}

const BlockClock& block_clock() { return blocks().clock; }

void fence() {
  Blocks& b = blocks();
  ++b.clock.fences;
  join(b.known, b.seen);
  b.released = b.known;
  b.released[b.clock.block] = b.clock.fences;
}

void atomic_done(const void* address) {
  Blocks& b = blocks();
  if (!has_waited(thread_index()) && touches_device(address, 1)) {
    fault("an atomic operation on device memory by a thread that has not waited for earlier launches");
  }
  const auto word = b.at_word.find(address);
  if (word != b.at_word.end()) join(b.seen, word->second);
  if (b.clock.fences > 0) join(b.at_word[address], b.released);
}

bool knows(uint32_t block, uint32_t fences) {
  const Known& known = blocks().known;
  const auto found = known.find(block);
  return found != known.end() && fences < found->second;
}

void thread_waits(unsigned thread) { blocks().waited[thread] = true; }
bool has_waited(unsigned thread) { return blocks().waited[thread]; }
bool may_still_run(uint32_t launch) {
  return launch >= blocks().last_in_order && launch < blocks().clock.launch;
}
uint64_t early_launches() { return blocks().early_launches; }

}  // namespace simt
