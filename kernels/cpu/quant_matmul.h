#pragma once
#include "kernels/cpu/quantize.h"

// The product with quantised weights (formulas and layout: kernels/quant.h), for one row of x and for many:
// one kernel, so that every row gets the same sums in the same order however a prefill is split.
namespace lariat::cpu {

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

void quant_dot(const QuantTask& task);       // any processor
void quant_dot_vnni(const QuantTask& task);  // only where has_avx512_vnni()

// Multiplies and adds in registers alone, with the instruction of the kernel above, `turns` times; returns
// the operations done. For measure_gemm_peak (bandwidth.h).
double vnni_multiply_adds(int64_t turns, float* sink);

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]), w quantised, and the scratch memory it needs.
void quant_matmul(const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out, void* scratch,
                  int threads);
size_t quant_matmul_scratch_bytes(const Matrix& x, const Matrix& w);

}  // namespace lariat::cpu
