#pragma once
#include <span>

#include "kernels/quant.h"
#include "kernels/weight.h"

// The product with quantised weights (formulas and layout: kernels/quant.h), of codes that stand for integers
// for one row of x and for many: one kernel, so that every row gets the same sums in the same order however a
// prefill is split. Where there is AMX, more than kGemvRows rows that are not an expert's take tiles of bf16
// instead (amx_product.h). More than kGemvRows rows and codes that stand for floats: gemm.h.
namespace lariat::cpu {

// Tiles [first, last) of dst (quantised) from src (floats, same shape): quantize() of kernels/quant.h, bit by
// bit.
void quantize_tiles(const Matrix& src, const Matrix& dst, int64_t first, int64_t last);

// Rows of x as the quantised product reads them, the same for all weights with integers for codes. Columns
// are padded with zeros to whole blocks of the weights; what lies behind a weight's own it does not read.
struct QuantRows {
  int8_t* values = nullptr;  // [rows][columns]
  float* scales = nullptr;   // [rows][groups]
  int32_t* sums = nullptr;   // [rows][groups][2]: of a group's values, and of its second half's
  float* floats = nullptr;   // instead of all these, for codes that stand for floats: x, [rows][columns]
  int64_t rows = 0, groups = 0;

  int64_t columns() const { return groups * kQuantGroup; }

  // Views of `memory`, aligned to 64 bytes, of bytes(rows, groups).
  QuantRows(void* memory, int64_t rows_, int64_t groups_, bool integers);
  static size_t bytes(int64_t rows, int64_t groups, bool integers);
};

// Rows [first, last) of x (f32) -> to.
void quantize_rows(const Matrix& x, const QuantRows& to, int64_t first, int64_t last);

// Some rows of x times some tiles of w: tiles first_tile, first_tile + tile_distance, ...; out holds these
// rows of x and all columns. At most kMaxQuantRows rows and kMaxQuantTiles tiles.
struct QuantTask {
  const QuantRows& x;
  int64_t first_row, rows;
  const Matrix& w;
  int64_t first_tile, tile_distance, tiles;
  const Matrix& out;
};

inline constexpr int64_t kMaxQuantTiles = 4;
// Register tiles of the kernels: many rows of x by two tiles of w, or few rows by four.
inline constexpr int64_t kMaxQuantRows = 6, kFewQuantRows = 3;

void quant_dot(const QuantTask& task);         // any processor
void quant_dot_avx2(const QuantTask& task);    // only where has_avx2()
void quant_dot_vnni(const QuantTask& task);    // only where has_avx512_vnni()
void quant_dot_floats(const QuantTask& task);  // of codes that stand for floats, any processor

// Tiles [first, last) of w times all rows of x, on the calling thread.
void quant_tiles(const QuantRows& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last);

// bf16_multiply_adds (gemm.h) with the instruction of the kernel above.
double vnni_multiply_adds(int64_t repetitions, float* sink);

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) for each product, and the scratch memory it needs. The codes
// of all w stand for integers, and x is quantised once, or of all for floats.
void quant_matmul(const Matrix& x, std::span<const Product> products, void* scratch, int threads);
size_t quant_matmul_scratch_bytes(const Matrix& x, std::span<const Product> products);

// Rows [row, row + to.rows) and columns [column, column + to.cols) of w (quantised) -> to (f32). column: a
// multiple of kQuantGroup.
void dequantize(const Matrix& w, int64_t row, int64_t column, const Matrix& to);

}  // namespace lariat::cpu
