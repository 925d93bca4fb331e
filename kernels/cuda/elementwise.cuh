#pragma once
#include <algorithm>

#include "kernels/cuda/dispatch.h"

// x[t][i] = op(x[t][i], y[t][i]) for whole matrices.
namespace lariat::cuda {

// Grid: rows by chunks of 1024 columns; 256 threads of four neighbouring elements each. Bound by memory:
// 12 bytes per element. kVector: rows start at multiples of 16 bytes and cols is a multiple of 4.
template <class Op, bool kVector>
__global__ void elementwise_kernel(float* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t cols,
                                   Op op) {
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 4;
  float* px = x + blockIdx.x * x_stride + first;
  const float* py = y + blockIdx.x * y_stride + first;
  if constexpr (kVector) {
    if (first >= cols) return;
    auto* vx = reinterpret_cast<float4*>(px);
    float4 a = *vx;
    const float4 b = *reinterpret_cast<const float4*>(py);
    a.x = op(a.x, b.x);
    a.y = op(a.y, b.y);
    a.z = op(a.z, b.z);
    a.w = op(a.w, b.w);
    *vx = a;
  } else {
    for (int64_t i = 0; i < 4 && first + i < cols; ++i) px[i] = op(px[i], py[i]);
  }
}

template <class Op>
void launch_elementwise(const Matrix& x, const Matrix& y, Op op, Stream stream) {
  constexpr unsigned kThreads = 256;
  const auto chunks = to_unsigned(ceil_div<int64_t>(x.cols, int64_t{kThreads} * 4));
  const dim3 grid(to_unsigned(x.rows), chunks);
  const bool vector = x.cols % 4 == 0 && rows_aligned16(x) && rows_aligned16(y);
  launch(vector ? elementwise_kernel<Op, true> : elementwise_kernel<Op, false>, grid, dim3(kThreads), 0,
         stream, typed<float>(x), x.stride, typed<float>(y), y.stride, x.cols, op);
}

}  // namespace lariat::cuda
