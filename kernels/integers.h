#pragma once

namespace lariat {

// a / b rounded up, and a rounded up to a multiple of b, for a >= 0 and b > 0. The caller sees to it that a +
// b does not overflow.
template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

}  // namespace lariat
