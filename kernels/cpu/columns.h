#pragma once
#include "kernels/convert.h"
#include "kernels/tensor.h"

namespace lariat::cpu {

// The columns [first, first + count) of a host matrix of floats.
inline Matrix column_range(const Matrix& m, int64_t first, int64_t count) {
  return {static_cast<char*>(m.data) + first * static_cast<int64_t>(size_of(m.dtype)), m.dtype, m.rows, count,
          m.stride};
}

// out[t][o] += bias[first + o]; out: f32. No bias: nothing.
inline void add_bias(const Matrix& bias, int64_t first, const Matrix& out) {
  for (int64_t t = 0; bias && t < out.rows; ++t) {
    for (int64_t o = 0; o < out.cols; ++o) out.f32(t)[o] += load_f32(bias.data, bias.dtype, first + o);
  }
}

}  // namespace lariat::cpu
