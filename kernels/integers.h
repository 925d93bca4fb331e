#pragma once
#include <cstdint>
#include <type_traits>

namespace lariat {

// a / b rounded up, and a rounded up to a multiple of b. Requires a >= 0, b > 0, no overflow of a + b.
template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

// Calls body(std::integral_constant<int, n>()) for an n from 1 to kMost.
template <int kMost, class Body>
void with_count(int64_t n, const Body& body) {
  if constexpr (kMost > 1) {
    if (n < kMost) return with_count<kMost - 1>(n, body);
  }
  body(std::integral_constant<int, kMost>());
}

}  // namespace lariat
