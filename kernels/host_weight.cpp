#include "kernels/host_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/convert.h"
#include "kernels/integers.h"
#include "kernels/quant.h"
#include "kernels/search_quant.h"

namespace lariat {
namespace {

class RowOfCodes {
 public:
  explicit RowOfCodes(const Matrix& m)
      : m_(m),
        layout_(m),
        codes_(static_cast<size_t>(round_up(m.cols, kQuantGroup))),
        scales_(static_cast<size_t>(2 * (layout_.scales() + layout_.blocks()))) {}

  CodeRow room() {
    float *scales = scales_.data(), *minima = scales + layout_.scales(), *outer = minima + layout_.scales();
    return {codes_.data(), scales, minima, outer, outer + layout_.blocks()};
  }
  // Dequantizes the row; values: the value of each code.
  void floats(const std::array<float, 256>& values, float* to) {
    const auto& [codes, scales, minima, outer, outer_minima] = room();
    for (int64_t g = 0; g < layout_.scales(); ++g) {
      const int64_t first = g * layout_.size(), block = first / layout_.block();
      const double scale = (layout_.nested() ? outer[block] : 1.0F) * scales[g];
      double minimum = 0;
      if (m_.grouping.minimum) minimum = (layout_.nested() ? outer_minima[block] : 1.0F) * minima[g];
      for (int64_t c = first; c < std::min(first + layout_.size(), m_.cols); ++c) {
        to[c] = static_cast<float>(scale * values[codes[c]] + minimum);
      }
    }
  }

 private:
  const Matrix& m_;
  const QuantLayout layout_;
  std::vector<uint8_t> codes_;  // padding of the last group is zero
  std::vector<float> scales_;
};

// shift: of a scale, or of a minimum, in the byte of a pair.
void store_scale(ScaleType type, float value, uint8_t* to, int shift = 0) {
  const auto store = [to](const auto& bits) { std::memcpy(to, &bits, sizeof bits); };
  if (type == ScaleType::kF32) {
    store(value);
  } else if (type == ScaleType::kNested) {
    store(static_cast<int8_t>(value));
  } else if (type == ScaleType::kPairs) {
    *to |= static_cast<uint8_t>(static_cast<int>(value) << shift);
  } else {
    store(type == ScaleType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
  }
}

// Whether a group has an FP8 NaN, which kernels do not check.
bool has_nan(const CodeRow& from, const QuantLayout& layout, int64_t g) {
  if (layout.format.grouping.code != Code::kE4M3 || layout.nested()) return false;
  const uint8_t* const first = from.codes + g * layout.size();
  const int64_t count = std::min(layout.size(), layout.cols - g * layout.size());
  return std::any_of(first, first + count, [](uint8_t code) { return (code & 0x7f) == 0x7f; });
}

// Writes a row's scales to their positions in `to`, which must be zero there.
void put_scales(const CodeRow& from, const QuantLayout& layout, int64_t row, uint8_t* to) {
  const Grouping& grouping = layout.format.grouping;
  const int64_t scale_step = kQuantRows * layout.scale_width(), minima = layout.inner_bytes();
  for (int64_t b = 0; b < layout.blocks(); ++b) {
    const int64_t first = b * layout.block(), last = std::min(first + layout.block(), layout.cols);
    uint8_t* scale = to + layout.scale_at(row, first);
    for (int64_t g = first / layout.size(); g * layout.size() < last; ++g, scale += scale_step) {
      store_scale(grouping.scales, has_nan(from, layout, g) ? NAN : from.scales[g], scale);
      if (grouping.minimum) store_scale(grouping.scales, from.minima[g], scale + minima, 4);
    }
    if (!layout.nested()) continue;
    uint8_t* const outer = to + layout.outer_at(row, first);
    store_scale(ScaleType::kF16, from.outer[b], outer);
    if (grouping.minimum) store_scale(ScaleType::kF16, from.outer_minima[b], outer + 2 * kQuantRows);
  }
}

// Reads float rows, without a copy if the dtypes are equal.
void read_float_rows(const HostWeight& from, int64_t first_row, const Matrix& to) {
  std::vector<float> row(static_cast<size_t>(to.cols));  // wide enough for any dtype
  const bool same = from.m.dtype == to.dtype;
  for (int64_t r = 0; r < to.rows; ++r) {
    void* const at = same ? to.row_range(r, 1).data : row.data();
    from.read_row(first_row + r, {static_cast<uint8_t*>(at)});
    if (!same) convert({at, from.m.dtype, 1, to.cols}, to.row_range(r, 1));
  }
}

HostWeight float_columns(const HostWeight& from, int64_t first, int64_t count) {
  const auto element = static_cast<int64_t>(size_of(from.m.dtype));
  const auto read = [=](int64_t row, const CodeRow& to) {
    std::vector<uint8_t> copy;
    const uint8_t* whole = static_cast<const uint8_t*>(from.m.data) + row * from.m.stride * element;
    if (from.read_row) {
      copy.resize(static_cast<size_t>(from.m.cols * element));
      from.read_row(row, {copy.data()});
      whole = copy.data();
    }
    std::copy_n(whole + first * element, count * element, to.codes);
  };
  return {from.m.format(), from.m.rows, count, read};
}

HostWeight quantized_columns(const HostWeight& from, int64_t first, int64_t count) {
  const Matrix m = from.m;
  const auto read = [=, read = from.read_row](int64_t row, const CodeRow& to) {
    RowOfCodes whole(m);
    const auto& [codes, scales, minima, outer, outer_minima] = whole.room();
    read(row, whole.room());
    std::copy_n(codes + first, count, to.codes);
    const int64_t size = m.grouping.size, block = m.grouping.block, groups = ceil_div(count, size);
    std::copy_n(scales + first / size, groups, to.scales);
    if (m.grouping.minimum) std::copy_n(minima + first / size, groups, to.minima);
    if (!is_nested(m.grouping.scales)) return;
    std::copy_n(outer + first / block, ceil_div(count, block), to.outer);
    if (m.grouping.minimum)
      std::copy_n(outer_minima + first / block, ceil_div(count, block), to.outer_minima);
  };
  return {m.format(), m.rows, count, read};
}

// The same weight in f32.
HostWeight dequantized(const HostWeight& from) {
  const auto read = [from](int64_t row, const CodeRow& to) {
    read_floats(from, row, {to.codes, DType::kF32, 1, from.m.cols});
  };
  return {DType::kF32, from.m.rows, from.m.cols, read};
}

}  // namespace

HostWeight rows_of(const HostWeight& from, int64_t first, int64_t count) {
  if (from.m) return from.m.row_range(first, count);
  const auto read = [read = from.read_row, first](int64_t row, const CodeRow& to) { read(first + row, to); };
  return {from.m.format(), count, from.m.cols, read};
}

HostWeight columns_of(const HostWeight& from, int64_t first, int64_t count) {
  if (from.m && from.m.rows == 1) return from.m.column_range(first, count);
  if (!is_quantized(from.m.dtype)) return float_columns(from, first, count);
  return first % from.m.grouping.unit() == 0 ? quantized_columns(from, first, count)
                                             : float_columns(dequantized(from), first, count);
}

bool copies_codes(const HostWeight& from, const Matrix& to) {
  return from.read_row && from.m.format() == to.format();
}

void put_codes(const uint8_t* codes, const QuantLayout& layout, uint8_t* tile) {
  for (int64_t b = 0; b < layout.blocks(); ++b, tile += layout.block_bytes()) {
    std::fill_n(tile + layout.scale_bytes(), layout.block_bytes() - layout.scale_bytes(), uint8_t{0});
  }
  tile -= layout.tile_bytes();
  const int64_t columns = layout.groups() * kQuantGroup;
  for (int64_t i = 0; i < kQuantRows * columns; ++i) layout.put(codes[i], i / columns, i % columns, tile);
}

void lay_out_tiles(const HostWeight& from, int64_t first_row, const Matrix& to, int64_t first, int64_t last,
                   PutCodes put) {
  const QuantLayout layout(to);
  RowOfCodes row(to);
  CodeRow room = row.room();
  const int64_t columns = layout.groups() * kQuantGroup;
  std::vector<uint8_t> codes(static_cast<size_t>(kQuantRows * columns));
  for (int64_t tile = first; tile < last; ++tile) {
    const int64_t count = std::min(kQuantRows, to.rows - tile * kQuantRows);
    uint8_t* const at = static_cast<uint8_t*>(to.data) + tile * layout.tile_bytes();
    for (int64_t b = 0; b < layout.blocks(); ++b)
      std::fill_n(at + b * layout.block_bytes(), layout.scale_bytes(), uint8_t{0});
    if (count < kQuantRows) std::ranges::fill(codes, uint8_t{0});
    for (int64_t r = 0; r < count; ++r) {
      room.codes = codes.data() + r * columns;
      from.read_row(first_row + tile * kQuantRows + r, room);
      put_scales(room, layout, r, at);
    }
    put(codes.data(), layout, at);
  }
}

void read_floats(const HostWeight& from, int64_t first_row, const Matrix& to) {
  if (!from.read_row) return convert(from.m.row_range(first_row, to.rows), to);
  if (!is_quantized(from.m.dtype)) return read_float_rows(from, first_row, to);
  RowOfCodes row(from.m);
  std::array<float, 256> values{};
  const size_t codes = from.m.dtype == DType::kQ4 ? 16 : 256;
  for (size_t q = 0; q < codes; ++q) values[q] = code_value(from.m.format(), static_cast<uint8_t>(q));
  std::vector<float> made(static_cast<size_t>(to.cols));
  for (int64_t r = 0; r < to.rows; ++r) {
    from.read_row(first_row + r, row.room());
    row.floats(values, made.data());
    convert({made.data(), DType::kF32, 1, to.cols}, to.row_range(r, 1));
  }
}

void lay_out(const HostWeight& from, const Matrix& to) {
  const QuantLayout layout(to);
  if (!is_quantized(to.dtype)) return read_floats(from, 0, to);
  if (!from.read_row)
    return to.grouping.plain() ? quantize(from.m, to) : lay_out(searched(from.m, to.format()), to);
  if (copies_codes(from, to)) return lay_out_tiles(from, 0, to, 0, layout.tiles(), put_codes);
  std::vector<float> made(static_cast<size_t>(to.rows * to.cols));
  const Matrix floats(made.data(), DType::kF32, to.rows, to.cols);
  read_floats(from, 0, floats);
  lay_out(floats, to);
}

}  // namespace lariat
