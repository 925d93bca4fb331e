#pragma once
#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/tensor.h"

namespace lariat {

// Destination of one row of a weight: its codes, one byte each, with their scales, or the bytes of its
// floats. A group's scale is scales[g], nested: outer[b] * scales[g] with small integers for scales; its
// minimum likewise.
struct CodeRow {
  uint8_t* codes;
  // One for each Grouping::size inputs; minima if the form has any.
  float *scales = nullptr, *minima = nullptr;
  // One for each Grouping::block inputs, nested alone.
  float *outer = nullptr, *outer_minima = nullptr;
};

// A weight [outputs, inputs] before a backend has it: floats in host memory, which must outlive it, or codes
// or floats that a reader makes row by row.
struct HostWeight {
  Matrix m;  // the floats in memory; of a reader the form and the shape alone
  // Fills all that the form has of a row. Called by several threads. Empty: m has data.
  std::function<void(int64_t row, const CodeRow& to)> read_row;

  HostWeight(const Matrix& floats) : m(floats) {}  // NOLINT(google-explicit-constructor): most are
  HostWeight(const WeightFormat& form, int64_t rows, int64_t cols,
             std::function<void(int64_t row, const CodeRow& to)> read)
      : m(nullptr, form, rows, cols), read_row(std::move(read)) {}
};

// The one way from host forms into what kernels read (kernels/quant.h), for matrices `to` in host memory. Row
// r of `to` is row first_row + r of the weight.

// Codes -> the tiles [first, last) of `to`, which has their form: taken over as they are.
void lay_out_tiles(const HostWeight& from, int64_t first_row, const Matrix& to, int64_t first, int64_t last);
// Either -> all rows of `to`, floats.
void read_floats(const HostWeight& from, int64_t first_row, const Matrix& to);
// Either -> `to`, in any form; one value at a time. Floats become codes of the forms that are made
// here: quantize() of kernels/quant.h, or searched (kernels/search_quant.h). The CPU's own:
// kernels/cpu/lay_out_rows.h.
void lay_out(const HostWeight& from, const Matrix& to);

}  // namespace lariat
