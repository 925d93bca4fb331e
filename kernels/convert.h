#pragma once
#include <bit>
#include <cstdint>

#include "kernels/tensor.h"

// Widening is exact; narrowing rounds to nearest, ties to even. A NaN stays a quiet NaN with its sign and
// upper payload. The vector versions (kernels/cpu/simd-inl.h) and the device versions must be bitwise
// identical.
namespace lariat {

constexpr float bf16_to_f32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

constexpr uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  const uint32_t half_or_just_below = 0x7fffU + ((bits >> 16) & 1U);  // ties go to the even neighbour
  return static_cast<uint16_t>((bits + half_or_just_below) >> 16);
}

constexpr float f16_to_f32(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  const uint32_t exponent = (value >> 10) & 0x1fU, fraction = value & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in f32
    const auto magnitude = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
    return std::bit_cast<float>(sign | magnitude);
  }
  const uint32_t rebias = exponent == 31 ? 255 - 31 : 127 - 15;
  const uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000U : 0;
  return std::bit_cast<float>(sign | ((exponent + rebias) << 23) | (fraction << 13) | quiet);
}

constexpr uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {  // 65520: midpoint of the largest f16 and 65536
    half = 0x7c00U;
  } else if (magnitude < 0x38800000U) {
    // Below 2^-14, f16 is a multiple of 2^-24, the ulp of 0.5F: adding 0.5F rounds to it.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  } else {
    half = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

constexpr float round_to_bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }
constexpr float round_to_f16(float value) { return f16_to_f32(f32_to_f16(value)); }

inline float load_f32(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

inline void store_f32(void* data, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
  }
}

inline void convert(const Matrix& src, const Matrix& dst) {
  for (int64_t r = 0; r < src.rows; ++r) {
    for (int64_t c = 0; c < src.cols; ++c) {
      store_f32(dst.data, dst.dtype, r * dst.stride + c, load_f32(src.data, src.dtype, r * src.stride + c));
    }
  }
}

}  // namespace lariat
