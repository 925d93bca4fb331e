#include "kernels/host_weight.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/convert.h"
#include "kernels/quant.h"
#include "kernels/search_quant.h"

namespace lariat {
namespace {

// Room for what a form has of one row.
class RowOfCodes {
 public:
  explicit RowOfCodes(const Matrix& m)
      : m_(m),
        layout_(m),
        codes_(static_cast<size_t>(m.cols)),
        scales_(static_cast<size_t>(2 * (layout_.scales() + layout_.blocks()))) {}

  CodeRow room() {
    float *scales = scales_.data(), *minima = scales + layout_.scales(), *outer = minima + layout_.scales();
    return {codes_.data(), scales, minima, outer, outer + layout_.blocks()};
  }
  const uint8_t* codes() const { return codes_.data(); }

  float value(int64_t col) {
    const auto& [codes, scales, minima, outer, outer_minima] = room();
    const int64_t group = col / layout_.size(), block = col / layout_.block();
    const bool nested = layout_.nested();
    const double scale = (nested ? outer[block] : 1.0F) * scales[group];
    const double product = scale * code_value(m_.form(), codes[col]);
    if (!m_.grouping.minimum) return static_cast<float>(product);
    return static_cast<float>(product + (nested ? outer_minima[block] : 1.0F) * minima[group]);
  }

 private:
  const Matrix& m_;
  const QuantLayout layout_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
};

void store_scale(ScaleType type, float value, uint8_t* to) {
  const auto store = [to](const auto& bits) { std::memcpy(to, &bits, sizeof bits); };
  if (type == ScaleType::kF32) {
    store(value);
  } else if (type == ScaleType::kNested) {
    store(static_cast<int8_t>(value));
  } else {
    store(type == ScaleType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
  }
}

// Puts row `row` where `to` has it, whose bytes there are zero.
void put_row(const CodeRow& from, const QuantLayout& layout, int64_t row, uint8_t* to) {
  const Grouping& grouping = layout.form.grouping;
  for (int64_t g = 0; g < layout.scales(); ++g) {
    uint8_t* const at = to + layout.scale_at(row, g * layout.size());
    store_scale(grouping.scales, from.scales[g], at);
    if (grouping.minimum) store_scale(grouping.scales, from.minima[g], at + layout.inner_bytes());
  }
  for (int64_t b = 0; layout.nested() && b < layout.blocks(); ++b) {
    uint8_t* const at = to + layout.outer_at(row, b * layout.block());
    store_scale(ScaleType::kF16, from.outer[b], at);
    if (grouping.minimum) store_scale(ScaleType::kF16, from.outer_minima[b], at + 2 * kQuantRows);
  }
  for (int64_t first = 0; first < layout.cols; first += 4) {
    uint8_t* const at = to + layout.value_at(row, first);
    const int64_t count = std::min<int64_t>(4, layout.cols - first);
    const int shift = layout.in_high_nibble(first) ? 4 : 0;
    for (int64_t i = 0; i < count; ++i) at[i] = static_cast<uint8_t>(at[i] | from.codes[first + i] << shift);
  }
}

}  // namespace

void lay_out_tiles(const HostWeight& from, int64_t first_row, const Matrix& to, int64_t first, int64_t last) {
  const QuantLayout layout(to);
  auto* const bytes = static_cast<uint8_t*>(to.data);
  std::fill(bytes + first * layout.tile_bytes(), bytes + last * layout.tile_bytes(), uint8_t{0});
  RowOfCodes row(to);
  for (int64_t r = first * kQuantRows; r < std::min(last * kQuantRows, to.rows); ++r) {
    from.read_codes(first_row + r, row.room());
    put_row(row.room(), layout, r, bytes);
  }
}

void read_floats(const HostWeight& from, int64_t first_row, const Matrix& to) {
  RowOfCodes row(from.m);
  for (int64_t r = 0; r < to.rows; ++r) {
    from.read_codes(first_row + r, row.room());
    for (int64_t c = 0; c < to.cols; ++c) store_f32(to.data, to.dtype, r * to.stride + c, row.value(c));
  }
}

void lay_out(const HostWeight& from, const Matrix& to) {
  const QuantLayout layout(to);
  if (!from.read_codes) {
    if (!is_quantized(to.dtype)) return convert(from.m, to);
    return to.grouping == Grouping{} ? quantize(from.m, to) : lay_out(searched(from.m, to.form()), to);
  }
  if (from.m.form() == to.form()) return lay_out_tiles(from, 0, to, 0, layout.tiles());
  if (!is_quantized(to.dtype)) return read_floats(from, 0, to);
  std::vector<float> made(static_cast<size_t>(to.rows * to.cols));
  const Matrix floats(made.data(), DType::kF32, to.rows, to.cols);
  read_floats(from, 0, floats);
  lay_out(floats, to);
}

}  // namespace lariat
