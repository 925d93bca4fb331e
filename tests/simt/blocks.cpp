#include "tests/simt/blocks.h"

#include <algorithm>
#include <unordered_map>

namespace simt {
namespace {

// How many fences of each block are known: what was written before them can be read.
using Known = std::unordered_map<uint32_t, uint32_t>;

void join(Known& into, const Known& from) {
  for (const auto& [block, fences] : from) into[block] = std::max(into[block], fences);
}

struct Blocks {
  BlockClock clock;
  Known known;                                     // to the running block
  Known seen;                                      // the same once it has passed another fence
  Known released;                                  // by its last fence: what its atomics tell others
  std::unordered_map<const void*, Known> at_word;  // what is told by atomics on each word
};

Blocks& blocks() {
  static auto& instance = *new Blocks;
  return instance;
}

}  // namespace

void begin_launch() {
  ++blocks().clock.launch;
  blocks().at_word.clear();
}

void begin_block(uint32_t block) {
  Blocks& b = blocks();
  b.clock.block = block;
  b.clock.fences = 0;
  b.known.clear();
  b.seen.clear();
  b.released.clear();
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
  const auto word = b.at_word.find(address);
  if (word != b.at_word.end()) join(b.seen, word->second);
  if (b.clock.fences > 0) join(b.at_word[address], b.released);
}

bool knows(uint32_t block, uint32_t fences) {
  const Known& known = blocks().known;
  const auto found = known.find(block);
  return found != known.end() && fences < found->second;
}

}  // namespace simt
