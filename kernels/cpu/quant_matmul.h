#pragma once
#include <span>

#include "kernels/quant.h"
#include "kernels/weight.h"

// Product with quantized weights (formulas and layout: kernels/quant.h). Integer codes use one kernel for any
// number of rows, so sums do not depend on the split of a prefill. With AMX, more than kGemvRows rows use
// bf16 tiles instead (amx_product.h), except for experts. Float codes with more than kGemvRows rows: gemm.h.
namespace lariat::cpu {

// Quantizes tiles [first, last) of src (floats) to dst, bitwise identical to quantize() of kernels/quant.h.
void quantize_tiles(const Matrix& src, const Matrix& dst, int64_t first, int64_t last);

// Rows of x for the quantized product, the same for all weights with integer codes. Columns are zero-padded
// to whole blocks; kernels do not read after a weight's own columns.
struct QuantRows {
  int8_t* values = nullptr;  // [rows][columns]
  float* scales = nullptr;   // [rows][groups]
  int32_t* sums = nullptr;   // [rows][groups][2]: sums of a group and of its second half
  float* floats = nullptr;   // for float codes, instead of the above: x, [rows][columns]
  int64_t rows = 0, groups = 0;

  int64_t columns() const { return groups * kQuantGroup; }

  // Views of `memory`, which has bytes(rows, groups) bytes and is aligned to 64 bytes.
  QuantRows(void* memory, int64_t rows_, int64_t groups_, bool integers);
  static size_t bytes(int64_t rows, int64_t groups, bool integers);
};

// Quantizes rows [first, last) of x (f32) to `to`.
void quantize_rows(const Matrix& x, const QuantRows& to, int64_t first, int64_t last);

// Some rows of x times tiles first_tile, first_tile + tile_distance, ... of w; out has these rows of x and
// all columns. At most kMaxQuantRows rows and kMaxQuantTiles tiles.
struct QuantTask {
  const QuantRows& x;
  int64_t first_row, rows;
  const Matrix& w;
  int64_t first_tile, tile_distance, tiles;
  const Matrix& out;
};

inline constexpr int64_t kMaxQuantTiles = 4;
// Register tiles: many rows of x by two tiles of w, or few rows by four.
inline constexpr int64_t kMaxQuantRows = 6, kFewQuantRows = 3;

void quant_dot(const QuantTask& task);         // any processor
void quant_dot_avx2(const QuantTask& task);    // requires has_avx2()
void quant_dot_vnni(const QuantTask& task);    // requires has_avx512_vnni()
void quant_dot_floats(const QuantTask& task);  // for float codes, any processor

// Tiles [first, last) of w times all rows of x, on the calling thread.
void quant_tiles(const QuantRows& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last);

// bf16_multiply_adds (gemm.h) with the instruction of quant_dot_vnni.
double vnni_multiply_adds(int64_t repetitions, float* sink);

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) for each product, and its scratch bytes. All w have integer
// codes (x is quantized once), or all have float codes.
void quant_matmul(const Matrix& x, std::span<const Product> products, void* scratch, int threads);
size_t quant_matmul_scratch_bytes(const Matrix& x, std::span<const Product> products);

// Dequantizes rows [row, row + to.rows) and columns [column, column + to.cols) of w to `to` (f32). column: a
// multiple of kQuantGroup.
void dequantize(const Matrix& w, int64_t row, int64_t column, const Matrix& to);

}  // namespace lariat::cpu
