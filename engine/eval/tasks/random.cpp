#include "engine/eval/tasks/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>

namespace lariat {
namespace {

// Fills a generator's state as init_by_array of the MT19937 reference code does for a key of one word.
struct OneWordKey {
  using result_type = uint32_t;
  uint32_t key;

  template <class Iterator>
  void generate(Iterator first, Iterator last) const {
    const auto n = static_cast<uint32_t>(last - first);
    std::vector<uint32_t> state(n);
    state[0] = 19650218;
    for (uint32_t i = 1; i < n; ++i) state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    uint32_t i = 1;
    const auto step = [&] {
      if (++i < n) return;
      state[0] = state[n - 1];
      i = 1;
    };
    for (uint32_t k = 0; k < n; ++k, step())
      state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525U)) + key;
    for (uint32_t k = 1; k < n; ++k, step())
      state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941U)) - i;
    state[0] = 0x80000000U;
    std::ranges::copy(state, first);
  }
};

std::mt19937 seeded(uint32_t seed) {
  OneWordKey key{seed};
  return std::mt19937(key);
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : engine_(seeded(seed)) {}

uint32_t PythonRandom::bits(int count) { return static_cast<uint32_t>(engine_() >> (32 - count)); }

double PythonRandom::real() {
  const uint32_t high = bits(27), low = bits(26);
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint32_t PythonRandom::below(uint32_t limit) {
  const int count = std::bit_width(limit);
  uint32_t drawn = bits(count);
  while (drawn >= limit) drawn = bits(count);
  return drawn;
}

int64_t PythonRandom::between(int64_t low, int64_t high) {
  return low + below(static_cast<uint32_t>(high - low + 1));
}

std::vector<size_t> PythonRandom::sample(size_t limit, size_t count) {
  const auto draw = [&](size_t n) -> size_t { return below(static_cast<uint32_t>(n)); };
  double set_size = 21;  // up to here Python draws from a list of all
  if (count > 5) set_size += std::pow(4, std::ceil(std::log(3.0 * static_cast<double>(count)) / std::log(4.0)));
  std::vector<size_t> drawn, pool;
  if (static_cast<double>(limit) <= set_size) {
    for (size_t i = 0; i < limit; ++i) pool.push_back(i);
    for (size_t left = limit; drawn.size() < count; --left) {
      const size_t at = draw(left);
      drawn.push_back(pool[at]);
      pool[at] = pool[left - 1];
    }
    return drawn;
  }
  std::unordered_set<size_t> known;
  while (drawn.size() < count) {
    const size_t at = draw(limit);
    if (known.insert(at).second) drawn.push_back(at);
  }
  return drawn;
}

std::string PythonRandom::letters(char first, size_t count) {
  std::string word;
  while (word.size() < count) word += static_cast<char>(first + static_cast<int>(real() * 26));
  return word;
}

std::string PythonRandom::uuid() {
  uint32_t word[4];  // from the lowest bits
  for (uint32_t& part : word) part = bits(32);
  word[1] = (word[1] & 0x3fffffffU) | 0x80000000U;  // variant
  word[2] = (word[2] & 0xffff0fffU) | 0x00004000U;  // version
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", word[3], word[2] >> 16, word[2] & 0xffff,
                     word[1] >> 16, word[1] & 0xffff, word[0]);
}

int64_t numpy_randint(std::mt19937& engine, int64_t low, int64_t high) {
  const auto most = static_cast<uint32_t>(high - 1 - low);
  const uint32_t mask = std::bit_ceil(most + 1) - 1;
  uint32_t drawn = static_cast<uint32_t>(engine()) & mask;
  while (drawn > most) drawn = static_cast<uint32_t>(engine()) & mask;
  return low + drawn;
}

}  // namespace lariat
