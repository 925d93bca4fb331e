#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/backend.h"
#include "kernels/convert.h"
#include "kernels/quant.h"

namespace lariat::reference {

inline double get(const Matrix& m, int64_t row, int64_t col) {
  if (is_quantized(m.dtype)) return dequantized(m, row, col);
  return load_f32(m.data, m.dtype, row * m.stride + col);
}

inline void put(const Matrix& m, int64_t row, int64_t col, double value) {
  store_f32(m.data, m.dtype, row * m.stride + col, static_cast<float>(value));
}

inline void rotate_pair(double* x, int64_t pair, int64_t rotary_dim, bool interleaved, double cos,
                        double sin) {
  double& first = x[interleaved ? 2 * pair : pair];
  double& second = x[interleaved ? 2 * pair + 1 : pair + rotary_dim / 2];
  const double a = first, b = second;
  first = a * cos - b * sin;
  second = a * sin + b * cos;
}

// x / sqrt(mean(x^2) + eps) * weight, in place.
inline void normalise(std::vector<double>& x, const Matrix& weight, double eps) {
  double sum_of_squares = 0;
  for (double value : x) sum_of_squares += value * value;
  const double factor = 1.0 / std::sqrt(sum_of_squares / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * get(weight, 0, static_cast<int64_t>(i));
}

// Stores one head in the cache; numbers beyond f16 become +-65504. Returns the count of +-65504 among the
// first `counted` numbers.
inline int64_t store_head(const std::vector<double>& values, void* keys_or_values, DType dtype, int64_t head,
                          int64_t position, int64_t counted) {
  const float largest = dtype == DType::kF16 ? 65504.0F : HUGE_VALF;
  int64_t saturated = 0;
  const auto head_dim = static_cast<int64_t>(values.size());
  for (int64_t d = 0; d < head_dim; ++d) {
    const auto value = static_cast<float>(values[static_cast<size_t>(d)]);
    const int64_t at = kv_index(head, position, d, head_dim);
    store_f32(keys_or_values, dtype, at, std::clamp(value, -largest, largest));
    const bool at_end = dtype == DType::kF16 && std::fabs(load_f32(keys_or_values, dtype, at)) == largest;
    if (at_end && d < counted) ++saturated;
  }
  return saturated;
}

}  // namespace lariat::reference
