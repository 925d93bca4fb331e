#include "kernels/quant.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/convert.h"

namespace lariat {
namespace {

constexpr uint16_t kNanScale = 0x7fc0;

struct Group {
  uint16_t scale = 0;  // bf16
  std::array<int, kQuantGroup> q{};
};

int nearest(float value) { return static_cast<int>(std::nearbyint(value)); }

// The largest magnitude; NaN when a value is not finite.
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

}  // namespace

size_t stored_bytes(const Matrix& m) {
  if (is_quantized(m.dtype)) return QuantLayout(m).bytes();
  return static_cast<size_t>(m.rows * m.cols) * size_of(m.dtype);
}

void quantize(const Matrix& src, const Matrix& dst) {
  const QuantLayout layout(dst);
  auto* bytes = static_cast<uint8_t*>(dst.data);
  std::fill(bytes, bytes + layout.bytes(), uint8_t{0});
  for (int64_t row = 0; row < layout.tiles() * kQuantRows; ++row) {
    for (int64_t first = 0; first < layout.blocks() * kQuantBlock; first += kQuantGroup) {
      float w[kQuantGroup] = {};
      for (int64_t i = first; row < src.rows && i < std::min(first + kQuantGroup, src.cols); ++i) {
        w[i - first] = load_f32(src.data, src.dtype, row * src.stride + i);
      }
      const Group group = quantize_group(w, dst.dtype);
      bytes[layout.scale_at(row, first)] = static_cast<uint8_t>(group.scale & 0xffU);
      bytes[layout.scale_at(row, first) + 1] = static_cast<uint8_t>(group.scale >> 8);
      for (int64_t i = first; i < first + kQuantGroup; ++i) {
        const int q = group.q[static_cast<size_t>(i - first)] + layout.zero();
        bytes[layout.value_at(row, i)] |= static_cast<uint8_t>(q << (layout.in_high_nibble(i) ? 4 : 0));
      }
    }
  }
}

float dequantized(const Matrix& m, int64_t row, int64_t col) {
  const QuantLayout layout(m);
  const auto* bytes = static_cast<const uint8_t*>(m.data);
  const int64_t at = layout.scale_at(row, col);
  const auto scale = static_cast<uint16_t>(bytes[at] | bytes[at + 1] << 8);
  int q = bytes[layout.value_at(row, col)];
  if (m.dtype == DType::kQ4) q = layout.in_high_nibble(col) ? q >> 4 : q & 15;
  return bf16_to_f32(scale) * static_cast<float>(q - layout.zero());
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
