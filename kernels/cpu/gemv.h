#pragma once
#include "kernels/tensor.h"

namespace lariat::cpu {

// Up to this many rows of x the weights are worth streaming once, unpacked (decode, and speculative or
// batched steps); beyond, packing pays (gemm.h).
inline constexpr int64_t kGemvRows = 8;

// out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]); x f32 or bf16, w and bias any dtype, out f32.
// Reads each weight once, at memory speed. A row's result depends on neither the number of rows nor the
// number of threads.
void gemv(const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out, int threads);

// Output columns [first, last) of a product of bf16 with bf16; only where has_avx512_bf16().
void gemv_bf16(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last);

}  // namespace lariat::cpu
