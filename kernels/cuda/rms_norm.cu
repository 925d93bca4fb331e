#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

struct NormRows {
  float* x;            // read; with kAdd the residual, which is updated
  const float* delta;  // kAdd only
  float* out;          // may be x or delta: a thread reads an element before it writes it, and no other does
  int64_t x_stride, delta_stride, out_stride, cols;
};

// out[t] = rms_norm(x[t]) * weight, after x[t] += delta_scale * delta[t] with kAdd. No weight: x alone
// changes.
// Grid: one block per row; a thread per four elements, up to 1024; 128 bytes of shared memory for the sum.
// Bound by memory for many rows and by latency for one; the second pass over x hits L1.
template <class W, bool kAdd>
__global__ void rms_norm_kernel(NormRows rows, const W* weight, float delta_scale, float eps) {
  LARIAT_SHARED(float, partial, kWarpSize);
  float* x = rows.x + blockIdx.x * rows.x_stride;
  float* out = rows.out + blockIdx.x * rows.out_stride;
  float sum = 0.0F;
  for (int64_t i = threadIdx.x; i < rows.cols; i += blockDim.x) {
    float value = x[i];
    if constexpr (kAdd) {
      value += delta_scale * rows.delta[blockIdx.x * rows.delta_stride + i];
      x[i] = value;
    }
    sum += value * value;
  }
  if (weight == nullptr) return;
  sum = block_sum(sum, partial);
  const float scale = 1.0F / sqrtf(sum / static_cast<float>(rows.cols) + eps);
  for (int64_t i = threadIdx.x; i < rows.cols; i += blockDim.x) {
    out[i] = x[i] * scale * to_float(weight[i]);
  }
}

template <bool kAdd>
void launch_rms_norm(const NormRows& rows, int64_t n_rows, const Matrix& weight, float delta_scale, float eps,
                     LaunchQueue& queue) {
  const int64_t threads = ceil_div<int64_t>(ceil_div<int64_t>(rows.cols, 4), kWarpSize) * kWarpSize;
  with_dtype(weight.dtype, [&]<class W>(W) {
    launch(rms_norm_kernel<W, kAdd>, dim3(to_unsigned(n_rows)),
           dim3(to_unsigned(std::min<int64_t>(threads, 1024))), 0, queue, rows, typed<W>(weight), delta_scale,
           eps);
  });
}

}  // namespace

void CudaBackend::rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) {
  launch_rms_norm<false>({typed<float>(x), nullptr, typed<float>(out), x.stride, 0, out.stride, x.cols},
                         x.rows, weight, 0.0F, eps, queue_);
}

void CudaBackend::add_rms_norm(const Matrix& residual, const Matrix& delta, float scale, const Matrix& weight,
                               float eps, const Matrix& out) {
  launch_rms_norm<true>({typed<float>(residual), typed<float>(delta), typed<float>(out), residual.stride,
                         delta.stride, out.stride, residual.cols},
                        residual.rows, weight, scale, eps, queue_);
}

}  // namespace lariat
