#pragma once
#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/tensor.h"

namespace lariat {

struct QuantLayout;

// One row of a weight: quantized values, one byte each, with scales, or the bytes of floats. Group g has
// the scale scales[g], or nested outer[b] * scales[g] with integer scales[g]. Minima likewise.
struct CodeRow {
  uint8_t* codes;
  // One per Grouping::size inputs; minima only if the format has them.
  float *scales = nullptr, *minima = nullptr;
  // One per Grouping::block inputs, nested only.
  float *outer = nullptr, *outer_minima = nullptr;
};

// Weight [outputs, inputs] before load: non-owned floats, or a reader of rows.
struct HostWeight {
  Matrix m;  // float data; with a reader only format and shape
  // Writes one row; called by several threads. Empty: m has data.
  std::function<void(int64_t row, const CodeRow& to)> read_row;

  HostWeight(const Matrix& floats) : m(floats) {}  // NOLINT(google-explicit-constructor): most are
  HostWeight(const WeightFormat& format, int64_t rows, int64_t cols,
             std::function<void(int64_t row, const CodeRow& to)> read)
      : m(nullptr, format, rows, cols), read_row(std::move(read)) {}
};

// Rows [first, first + count), in place if `from` is.
HostWeight rows_of(const HostWeight& from, int64_t first, int64_t count);
// Columns [first, first + count); of a quantized weight in f32, unless `first` begins a group, or a block if
// scales are nested. A reader, so that a load copies them: used in place, they would keep whole pages of a
// mapped file in memory. A single row of floats stays in place.
HostWeight columns_of(const HostWeight& from, int64_t first, int64_t count);

// Conversions to kernel layouts (kernels/quant.h) in host memory. Row r of `to` is row first_row + r of the
// weight.

// Whether lay_out_tiles() applies: `to` has the same quantized values.
bool copies_codes(const HostWeight& from, const Matrix& to);
// Writes the lines of a tile (kernels/quant.h) from its codes, [kQuantRows][inputs of whole blocks].
using PutCodes = void (*)(const uint8_t* codes, const QuantLayout& layout, uint8_t* tile);
void put_codes(const uint8_t* codes, const QuantLayout& layout, uint8_t* tile);
// Copies quantized values to tiles [first, last) of `to`.
void lay_out_tiles(const HostWeight& from, int64_t first_row, const Matrix& to, int64_t first, int64_t last,
                   PutCodes put);
// Converts any host weight to float rows of `to`.
void read_floats(const HostWeight& from, int64_t first_row, const Matrix& to);
// Converts any host weight to any format, floats by quantize() (kernels/quant.h) or by search
// (kernels/search_quant.h). CPU version: kernels/cpu/lay_out_rows.h.
void lay_out(const HostWeight& from, const Matrix& to);

}  // namespace lariat
