#pragma once
#include "kernels/convert.h"
#include "kernels/tensor.h"

// Whole matrices in host memory.
namespace lariat::cpu {

// dst = src, of one shape and any float dtypes: kernels/convert.h, vectorised, on the calling thread.
void convert_rows(const Matrix& src, const Matrix& dst);

// out[t][o] += bias[first + o]; out: f32. No bias: nothing.
inline void add_bias(const Matrix& bias, int64_t first, const Matrix& out) {
  for (int64_t t = 0; bias && t < out.rows; ++t) {
    for (int64_t o = 0; o < out.cols; ++o) out.f32(t)[o] += load_f32(bias.data, bias.dtype, first + o);
  }
}

}  // namespace lariat::cpu
