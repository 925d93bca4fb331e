#pragma once
#include <cstring>

#include "kernels/convert.h"
#include "kernels/integers.h"
#include "kernels/tensor.h"

namespace lariat::cpu {

// dst = src for float matrices of one shape (kernels/convert.h), vectorised.
void convert_rows(const Matrix& src, const Matrix& dst);

// Rows rounded to bf16, zero-padded to whole blocks of kTiledBlock columns.
constexpr size_t rounded_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * round_up(cols, kTiledBlock)) * 2;
}
inline Matrix rounded_rows(const Matrix& x, void* memory) {
  const Matrix whole(memory, DType::kBF16, x.rows, round_up(x.cols, kTiledBlock));
  const Matrix rows(memory, DType::kBF16, x.rows, x.cols, whole.stride);
  convert_rows(x, rows);
  for (int64_t r = 0; whole.cols > x.cols && r < x.rows; ++r) {
    const Matrix rest = whole.row_range(r, 1).column_range(x.cols, whole.cols - x.cols);
    std::memset(rest.data, 0, static_cast<size_t>(rest.cols) * 2);
  }
  return rows;
}

// out[t][o] += bias[first + o]; out: f32. Empty bias: no-op.
inline void add_bias(const Matrix& bias, int64_t first, const Matrix& out) {
  for (int64_t t = 0; bias && t < out.rows; ++t) {
    for (int64_t o = 0; o < out.cols; ++o) out.f32(t)[o] += load_f32(bias.data, bias.dtype, first + o);
  }
}

}  // namespace lariat::cpu
