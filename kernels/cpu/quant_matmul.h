#pragma once
#include <algorithm>
#include <span>

#include "kernels/quant.h"
#include "kernels/weight.h"

// Product with quantized weights (kernels/quant.h). Integer codes use one kernel for any number of rows, so
// that the sums are the same however a prefill is split. With AMX, more than kGemvRows rows use bf16 tiles
// (amx_product.h), except for experts and activations of 16 bits. Float codes with more than kGemvRows rows:
// gemm.h, with activations of 16 bits not on AMX.
namespace lariat::cpu {

// Quantizes tiles [first, last) of src to dst, bitwise identical to quantize().
void quantize_tiles(const Matrix& src, const Matrix& dst, int64_t first, int64_t last);

// Rows of x for the quantized product, `parts` per row of x, whose products are added. Columns are
// zero-padded to whole blocks; kernels do not read after a weight's own columns.
struct QuantRows {
  int8_t* values = nullptr;  // [rows][columns]
  float* scales = nullptr;   // [rows][groups]
  int32_t* sums = nullptr;   // [rows][groups][2]: of a group and of its second half
  float* floats = nullptr;   // for float codes, instead of the above: [rows][columns]
  int64_t rows = 0, groups = 0, parts = 1;

  int64_t columns() const { return groups * kQuantGroup; }

  // Views of `memory`: bytes(x_rows, groups, parts) bytes, aligned to 64. parts: 0 for float codes.
  QuantRows(void* memory, int64_t x_rows, int64_t groups_, int64_t parts_);
  static size_t bytes(int64_t x_rows, int64_t groups, int64_t parts);
};
inline int64_t parts_for(Code code, int bits) { return is_integer(code) ? bits / 8 : 0; }

void quantize_rows(const Matrix& x, const QuantRows& to, int64_t first, int64_t last);

// Some rows of `x` times tiles first_tile, first_tile + tile_distance, ... of w: at most kMaxQuantRows rows,
// with all parts of a row of x, and kMaxQuantTiles tiles.
struct QuantTask {
  const QuantRows& x;
  int64_t first_row, rows;
  const Matrix& w;
  int64_t first_tile, tile_distance, tiles;
  const Matrix& out;

  // Stores, or adds to earlier parts, the products of row a of the task with the tile at output `column`.
  void store(int64_t a, int64_t column, const float* products) const {
    const int64_t parts = std::max<int64_t>(x.parts, 1), count = std::min(kQuantRows, w.rows - column);
    float* const to = out.f32((first_row + a) / parts) + column;
    for (int64_t i = 0; i < count; ++i) to[i] = a % parts == 0 ? products[i] : to[i] + products[i];
  }
};

inline constexpr int64_t kMaxQuantTiles = 4;
// Register tiles: many rows by two tiles, or few rows by four.
inline constexpr int64_t kMaxQuantRows = 6, kFewQuantRows = 3;

void quant_dot(const QuantTask& task);         // any processor
void quant_dot_avx2(const QuantTask& task);    // requires has_avx2()
void quant_dot_vnni(const QuantTask& task);    // requires has_avx512_vnni()
void quant_dot_floats(const QuantTask& task);  // for float codes, any processor

// Weights with Grouping::bits: with reads_planes(w), products of up to kFewQuantRows rows unpack the planes
// in registers. Other products read tiles from L2, where widen_tiles() put each narrow code into a whole code
// of the DType.
bool reads_planes(const Matrix& w);
void widen_tiles(const Matrix& from, int64_t first_tile, const Matrix& to);
size_t widened_bytes(const Matrix& w);  // per thread

// Tiles [first, last) of w times all rows of x. widened: widened_bytes(w), aligned to 64.
void quant_tiles(const QuantRows& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last,
                 char* widened);

double vnni_multiply_adds(int64_t repetitions, float* sink);

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) for each product, and its scratch bytes. All w have integer
// codes (`bits` of x), or all have float codes.
void quant_matmul(const Matrix& x, std::span<const Product> products, int bits, void* scratch, int threads);
size_t quant_matmul_scratch_bytes(const Matrix& x, std::span<const Product> products, int bits, int threads);

// Dequantizes columns [column, column + to.cols) of rows [row, row + to.rows) of w. column: a multiple of
// kQuantGroup.
void dequantize(const Matrix& w, int64_t row, int64_t column, const Matrix& to);

}  // namespace lariat::cpu
