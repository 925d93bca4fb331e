#include "kernels/quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/convert.h"

namespace lariat {
namespace {

constexpr uint16_t kNanScale = 0x7fc0;

constexpr float kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr float kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr float kNf4[16] = {-1.0F,
                            -0.6961928009986877F,
                            -0.5250730514526367F,
                            -0.39491748809814453F,
                            -0.28444138169288635F,
                            -0.18477343022823334F,
                            -0.09105003625154495F,
                            0.0F,
                            0.07958029955625534F,
                            0.16093020141124725F,
                            0.24611230194568634F,
                            0.33791524171829224F,
                            0.44070982933044434F,
                            0.5626170039176941F,
                            0.7229568362236023F,
                            1.0F};
constexpr float kFp4[16] = {0.0F,       0.0625F / 12, 8.0F / 12,  12.0F / 12,    4.0F / 12,  6.0F / 12,
                            2.0F / 12,  3.0F / 12,    -0.0F,      -0.0625F / 12, -8.0F / 12, -12.0F / 12,
                            -4.0F / 12, -6.0F / 12,   -2.0F / 12, -3.0F / 12};

// FP8 E4M3 (arXiv 2209.05433): no infinities, one NaN.
float e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float magnitude = (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                          : exponent == 0       ? static_cast<float>(mantissa) * 0x1p-9F
                                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

struct Group {
  uint16_t scale = 0;  // bf16
  std::array<int, kQuantGroup> q{};
};

int nearest(float value) { return static_cast<int>(std::nearbyint(value)); }

// Largest magnitude; NaN if any value is not finite.
float peak(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(values[i]));
  }
  return largest;
}

Group q8_group(const float* w, float largest) {
  Group group;
  group.scale = bf16_above(largest / 127);
  const float inverse = 1 / bf16_to_f32(group.scale);
  for (size_t i = 0; i < group.q.size(); ++i) group.q[i] = nearest(w[i] * inverse);
  return group;
}

Group q4_group(const float* w, float largest) {
  const float* extreme =
      std::find_if(w, w + kQuantGroup, [&](float value) { return std::abs(value) == largest; });
  Group group;
  group.scale = f32_to_bf16(*extreme / -8);
  const float inverse = 1 / bf16_to_f32(group.scale);
  for (size_t i = 0; i < group.q.size(); ++i) group.q[i] = std::clamp(nearest(w[i] * inverse), -8, 7);
  return group;
}

Group quantize_group(const float* w, DType dtype) {
  const float largest = peak(w, kQuantGroup);
  if (std::isnan(largest)) return {kNanScale, {}};
  if (largest < kQuantSmallest) return {};
  return dtype == DType::kQ8 ? q8_group(w, largest) : q4_group(w, largest);
}

// shift: of a scale, or of a minimum, in the byte of a pair.
float stored_scale(const QuantLayout& layout, const uint8_t* inner, const uint8_t* outer, int shift) {
  const auto half = [](const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); };
  switch (layout.format.grouping.scales) {
    case ScaleType::kBF16:
      return bf16_to_f32(half(inner));
    case ScaleType::kF16:
      return f16_to_f32(half(inner));
    case ScaleType::kF32: {
      float value = 0;
      std::memcpy(&value, inner, sizeof value);
      return value;
    }
    case ScaleType::kNested:
      return f16_to_f32(half(outer)) * static_cast<float>(static_cast<int8_t>(*inner));
    case ScaleType::kPairs:
      return f16_to_f32(half(outer)) * static_cast<float>(*inner >> shift & 15);
  }
  return 0;
}

}  // namespace

std::span<const float, 16> code_table(Code code) {
  switch (code) {
    case Code::kE2M1:
      return kE2M1;
    case Code::kNf4:
      return kNf4;
    case Code::kFp4:
      return kFp4;
    default:
      return kIq4;
  }
}

float code_value(const WeightFormat& format, uint8_t q) {
  const Code code = format.grouping.code;
  if (code == Code::kE4M3) return e4m3(q);
  if (code != Code::kLinear) return code_table(code)[q];
  return static_cast<float>(q - QuantLayout(format, 0, 0).zero());
}

size_t stored_bytes(const Matrix& m) {
  if (is_quantized(m.dtype)) return QuantLayout(m).bytes();
  if (m.tiled) return static_cast<size_t>(round_up(m.rows, kTiledBlock) * round_up(m.cols, kTiledBlock) * 2);
  return static_cast<size_t>(m.rows * m.cols) * size_of(m.dtype);
}

void quantize(const Matrix& src, const Matrix& dst) {
  const QuantLayout layout(dst);
  auto* bytes = static_cast<uint8_t*>(dst.data);
  std::fill(bytes, bytes + layout.bytes(), uint8_t{0});
  for (int64_t row = 0; row < layout.tiles() * kQuantRows; ++row) {
    for (int64_t first = 0; first < layout.groups() * kQuantGroup; first += kQuantGroup) {
      float w[kQuantGroup] = {};
      for (int64_t i = first; row < src.rows && i < std::min(first + kQuantGroup, src.cols); ++i) {
        w[i - first] = load_f32(src.data, src.dtype, row * src.stride + i);
      }
      const Group group = quantize_group(w, dst.dtype);
      bytes[layout.scale_at(row, first)] = static_cast<uint8_t>(group.scale & 0xffU);
      bytes[layout.scale_at(row, first) + 1] = static_cast<uint8_t>(group.scale >> 8);
      for (int64_t i = first; i < first + kQuantGroup; ++i) {
        layout.put(group.q[static_cast<size_t>(i - first)] + layout.zero(), row, i, bytes);
      }
    }
  }
}

float dequantized(const Matrix& m, int64_t row, int64_t col) {
  const QuantLayout layout(m);
  const auto* bytes = static_cast<const uint8_t*>(m.data);
  const uint8_t *inner = bytes + layout.scale_at(row, col), *outer = bytes + layout.outer_at(row, col);
  double value = stored_scale(layout, inner, outer, 0);
  value *= code_value(m.format(), layout.value(bytes, row, col));
  if (m.grouping.minimum)
    value += stored_scale(layout, inner + layout.inner_bytes(), outer + 2 * kQuantRows, 4);
  return static_cast<float>(value);
}

float quantize_inputs(const float* x, int64_t count, int8_t* q) {
  std::fill(q, q + count, int8_t{0});
  const float largest = peak(x, count);
  if (std::isnan(largest)) return largest;
  if (largest < kQuantSmallest) return 0;
  const float inverse = 127 / largest;
  for (int64_t i = 0; i < count; ++i) q[i] = static_cast<int8_t>(nearest(x[i] * inverse));
  return largest / 127;
}

}  // namespace lariat
