#pragma once
#include "kernels/quant.h"

namespace lariat::cpu {

// Tiles [first, last) of dst (quantised) from src (floats, same shape): quantize() of kernels/quant.h, bit by
// bit.
void quantize_tiles(const Matrix& src, const Matrix& dst, int64_t first, int64_t last);

// Rows of x as the quantised product reads them. Columns are padded with zeros to whole blocks.
struct QuantRows {
  int8_t* values = nullptr;    // [rows][blocks * kQuantBlock]
  float* scales = nullptr;     // [rows][groups]
  int32_t* offsets = nullptr;  // [rows][groups]: -zero * sum of the group's values
  int64_t rows = 0, blocks = 0;

  int64_t columns() const { return blocks * kQuantBlock; }
  int64_t groups() const { return blocks * (kQuantBlock / kQuantGroup); }

  // Views of `memory`, aligned to 64 bytes, of bytes(rows, blocks).
  QuantRows(void* memory, int64_t rows_, int64_t blocks_);
  static size_t bytes(int64_t rows, int64_t blocks);
};

// Rows [first, last) of x (f32) -> to; zero: of the weights (QuantLayout::zero).
void quantize_rows(const Matrix& x, int zero, const QuantRows& to, int64_t first, int64_t last);

}  // namespace lariat::cpu
