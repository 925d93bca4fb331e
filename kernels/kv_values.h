#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/backend.h"
#include "kernels/convert.h"

// 8-bit cached values with one scale per head and position.
namespace lariat {

// Quantizes x to out[d] in [-127, 127] and returns scale = max |x| / 127; |x[d] - scale out[d]| <= scale / 2.
// An infinity counts as the largest f32, as in an f16 cache. A NaN makes the scale NaN, because 8-bit
// integers would hide it. Vectors below 1e-36 become zeros.
inline float quantize_value(const float* x, int64_t n, int8_t* out) {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = 1e-36F;
  float largest = 0.0F;
  bool numbers = true;
  for (int64_t d = 0; d < n; ++d) {
    largest = std::max(largest, std::fabs(x[d]));
    numbers = numbers && x[d] == x[d];
  }
  largest = largest < kLeast ? 0.0F : std::min(largest, kMost);
  const float inverse = numbers && largest > 0.0F ? 127.0F / largest : 0.0F;
  constexpr float kToInteger = 0x1.8p23F;  // adding this rounds to the nearest integer, ties to even
  for (int64_t d = 0; d < n; ++d) {
    const float value = numbers ? std::clamp(x[d], -kMost, kMost) * inverse : 0.0F;
    out[d] = static_cast<int8_t>(static_cast<int>((value + kToInteger) - kToInteger));
  }
  return numbers ? largest / 127.0F : std::numeric_limits<float>::quiet_NaN();
}

// Scale of a head's value at a position; values: the layer's part of a page.
inline float& scale_of_value(const KvLayer& layer, void* values, int64_t head, int64_t position) {
  return *reinterpret_cast<float*>(static_cast<char*>(values) +
                                   kv_scale_offset(layer.n_kv_heads, layer.head_dim, head, position));
}

// Element d of a value of any dtype, as f32.
inline float load_value(const KvLayer& layer, void* values, int64_t head, int64_t position, int64_t d) {
  const int64_t at = kv_index(head, position, d, layer.head_dim);
  if (layer.v_dtype != DType::kQ8) return load_f32(values, layer.v_dtype, at);
  return scale_of_value(layer, values, head, position) * static_cast<float>(static_cast<int8_t*>(values)[at]);
}

inline void store_quantized_value(const KvLayer& layer, void* values, int64_t head, int64_t position,
                                  const float* x) {
  auto* integers = static_cast<int8_t*>(values) + kv_index(head, position, 0, layer.head_dim);
  scale_of_value(layer, values, head, position) = quantize_value(x, layer.head_dim, integers);
}

}  // namespace lariat
