#include "engine/eval/tasks/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

namespace lariat {
namespace {

// init_by_array of the MT19937 reference code for a key of one word.
struct OneWordKey {
  using result_type = uint32_t;
  uint32_t key;

  template <class Iterator>
  void generate(Iterator begin, Iterator end) const {
    const auto n = static_cast<uint32_t>(end - begin);
    std::vector<uint32_t> state(n, 19650218);
    const auto mixed = [&](uint32_t i) { return state[i] ^ (state[i] >> 30); };
    for (uint32_t i = 1; i < n; ++i) state[i] = 1812433253U * mixed(i - 1) + i;
    for (uint32_t left = 2 * n - 1, i = 1; left > 0; --left) {
      state[i] = left >= n ? (state[i] ^ mixed(i - 1) * 1664525U) + key
                           : (state[i] ^ mixed(i - 1) * 1566083941U) - i;
      if (++i < n) continue;
      state[0] = state[n - 1];
      i = 1;
    }
    state[0] = 0x80000000U;
    std::ranges::copy(state, begin);
  }
};

std::mt19937 seeded(OneWordKey key) { return std::mt19937(key); }

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : engine_(seeded({seed})) {}

double PythonRandom::real() {
  const uint32_t high = bits(27), low = bits(26);
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint32_t PythonRandom::below(size_t limit) {
  uint32_t drawn = bits(std::bit_width(limit));
  while (drawn >= limit) drawn = bits(std::bit_width(limit));
  return drawn;
}

std::vector<size_t> PythonRandom::sample(size_t limit, size_t count) {
  const double power = std::ceil(std::log(3.0 * static_cast<double>(count)) / std::log(4.0));
  const bool from_pool = static_cast<double>(limit) <= 21 + (count > 5 ? std::pow(4, power) : 0);
  std::vector<size_t> pool(limit), drawn;
  std::iota(pool.begin(), pool.end(), size_t{0});
  while (drawn.size() < count) {
    const size_t left = limit - drawn.size(), at = below(from_pool ? left : limit);
    if (from_pool || pool[at] < limit)
      drawn.push_back(std::exchange(pool[at], from_pool ? pool[left - 1] : limit));
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
  const auto most = static_cast<uint32_t>(high - 1 - low), mask = std::bit_ceil(most + 1) - 1;
  auto drawn = static_cast<uint32_t>(engine()) & mask;
  while (drawn > most) drawn = static_cast<uint32_t>(engine()) & mask;
  return low + drawn;
}

}  // namespace lariat
