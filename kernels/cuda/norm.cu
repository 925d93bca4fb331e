#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/output.cuh"

namespace lariat {
namespace {

using namespace cuda;

struct NormArgs {
  float* x;                   // input; with kAdd the residual, which is updated
  const float* delta;         // kAdd only
  void* out;                  // may be x or delta: each thread reads its elements before it writes them
  const void *weight, *bias;  // null weight: no norm, only x changes; null bias: none
  int64_t x_stride, delta_stride, out_stride, cols;
  DType bias_dtype;
  float delta_scale, eps;
};

// Mean in two parts, subtracted from x, and the scale.
struct Moments {
  float mean, rest, scale;
};

// Corrected two-pass algorithm, as LayerNormRow (kernels/cpu/norm-inl.h). sum: of the row's values.
__device__ __forceinline__ Moments centred_moments(const float* x, float sum, float cols, const NormArgs& a,
                                                   float* partial) {
  Moments m = {sum / cols, 0.0F, 0.0F};
  float left = 0.0F, squares = 0.0F;
  for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float value = x[i] - m.mean;
    left += value;
    squares += value * value;
  }
  left = block_sum(left, partial);
  squares = block_sum(squares, partial);
  m.rest = left / cols;
  m.scale = 1.0F / sqrtf(fmaxf(0.0F, squares - left * m.rest) / cols + a.eps);
  return m;
}

// Grid: one block per row; a thread per four elements, up to 1024. Bound by memory, or by latency for one
// row; further passes over x hit L1.
template <class W, class Out, bool kAdd, bool kCentred>
__global__ void norm_kernel(const __grid_constant__ NormArgs a) {
  LARIAT_SHARED(float, partial, kWarpSize);
  float* x = a.x + blockIdx.x * a.x_stride;
  Out* out = static_cast<Out*>(a.out) + blockIdx.x * a.out_stride;
  const W* weight = static_cast<const W*>(a.weight);
  launch_dependents();
  const int64_t line = int64_t{threadIdx.x} * (kLineBytes / static_cast<int>(sizeof(W)));
  if (weight != nullptr && line < a.cols) prefetch_l2(weight + line);
  wait_for_launches();
  float sum = 0.0F;  // of the values, or of their squares
  for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    float value = x[i];
    if constexpr (kAdd) {
      value += a.delta_scale * a.delta[blockIdx.x * a.delta_stride + i];
      x[i] = value;
    }
    sum += kCentred ? value : value * value;
  }
  if (weight == nullptr) return;
  sum = block_sum(sum, partial);
  const float cols = static_cast<float>(a.cols);
  Moments m = {0.0F, 0.0F, 0.0F};
  if constexpr (kCentred) {
    m = centred_moments(x, sum, cols, a, partial);
  } else {
    m.scale = 1.0F / sqrtf(sum / cols + a.eps);
  }
  for (int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float value = (x[i] - m.mean - m.rest) * m.scale * to_float(weight[i]);
    out[i] = from_float<Out>(a.bias == nullptr ? value : value + load_any(a.bias, a.bias_dtype, i));
  }
}

template <bool kAdd>
void launch_norm(const Matrix& x, const Matrix& delta, float scale, const Norm& norm, const Matrix& out,
                 LaunchQueue& queue) {
  NormArgs a = zeroed<NormArgs>();
  a.x = typed<float>(x);
  a.delta = typed<float>(delta);
  a.out = out.data;
  a.weight = norm.weight.data;
  a.bias = norm.bias.data;
  a.x_stride = x.stride;
  a.delta_stride = delta.stride;
  a.out_stride = out.stride;
  a.cols = x.cols;
  a.bias_dtype = norm.bias.dtype;
  a.delta_scale = scale;
  a.eps = norm.eps;
  const int64_t threads = ceil_div<int64_t>(ceil_div<int64_t>(x.cols, 4), kWarpSize) * kWarpSize;
  with_dtype(norm.weight.dtype, [&]<class W>(W) {
    with_output_dtype(out.dtype, [&]<class Out>(Out) {
      launch(norm.centred ? norm_kernel<W, Out, kAdd, true> : norm_kernel<W, Out, kAdd, false>,
             dim3(to_unsigned(x.rows)), dim3(to_unsigned(std::min<int64_t>(threads, 1024))), 0, queue, a);
    });
  });
}

}  // namespace

void CudaBackend::norm(const Matrix& x, const Norm& norm, const Matrix& out) {
  launch_norm<false>(x, Matrix(), 0.0F, norm, out, queue_);
}

void CudaBackend::add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                           const Matrix& out) {
  launch_norm<true>(residual, delta, scale, norm, out, queue_);
}

}  // namespace lariat
