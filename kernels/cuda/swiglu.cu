#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;

__device__ __forceinline__ float silu_times(float gate, float up) { return gate / (1.0F + expf(-gate)) * up; }

// Grid: rows by chunks of 1024 columns; 256 threads of four neighbouring elements each. Bound by memory: 12
// bytes per element. kVector: rows start at multiples of 16 bytes and cols is a multiple of 4.
template <bool kVector>
__global__ void swiglu_kernel(float* gate, int64_t gate_stride, const float* up, int64_t up_stride,
                              int64_t cols) {
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4;
  float* x = gate + blockIdx.x * gate_stride + first;
  const float* y = up + blockIdx.x * up_stride + first;
  if constexpr (kVector) {
    if (first >= cols) return;
    float4 a = *reinterpret_cast<float4*>(x);
    const float4 b = *reinterpret_cast<const float4*>(y);
    a.x = silu_times(a.x, b.x);
    a.y = silu_times(a.y, b.y);
    a.z = silu_times(a.z, b.z);
    a.w = silu_times(a.w, b.w);
    *reinterpret_cast<float4*>(x) = a;
  } else {
    for (int64_t i = 0; i < 4 && first + i < cols; ++i) x[i] = silu_times(x[i], y[i]);
  }
}

}  // namespace

void CudaBackend::swiglu(const Matrix& gate, const Matrix& up) {
  const dim3 grid(to_unsigned(gate.rows), to_unsigned(ceil_div<int64_t>(gate.cols, int64_t{kThreads} * 4)));
  const bool vector = gate.cols % 4 == 0 && rows_aligned16(gate) && rows_aligned16(up);
  launch(vector ? swiglu_kernel<true> : swiglu_kernel<false>, grid, dim3(kThreads), 0, queue_,
         typed<float>(gate), gate.stride, typed<float>(up), up.stride, gate.cols);
}

}  // namespace lariat
