#pragma once
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

namespace lariat::test {

// FIPS 180-4; the constants are fractions of square and cube roots of the first primes.
inline std::string sha256(std::string text) {
  std::array<uint32_t, 64> k{};
  std::array<uint32_t, 8> state{};
  const auto fraction = [](long double root) {
    return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
  };
  for (uint32_t n = 2, found = 0; found < k.size(); ++n) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    if (found < state.size()) state[found] = fraction(std::sqrt(static_cast<long double>(n)));
    k[found++] = fraction(std::cbrt(static_cast<long double>(n)));
  }
  const uint64_t bits = text.size() * 8;
  text += '\x80';
  while (text.size() % 64 != 56) text += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift);
  for (size_t block = 0; block < text.size(); block += 64) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(text[block + i]);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<uint32_t, 8> s = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t t = s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      const uint32_t u = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) +
                         ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {t + u, s[0], s[1], s[2], s[3] + t, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
  return fmt::format("{:08x}", fmt::join(state, ""));
}

}  // namespace lariat::test
