#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

// The ops that work element by element: glu and soft_cap.
namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;

// Grid: rows by chunks of 1024 columns; 256 threads of four neighbouring elements each. Bound by memory: 12
// bytes per element. kVector: rows start at multiples of 16 bytes and cols is a multiple of 4. up: may be
// null.
template <bool kVector>
__global__ void glu_kernel(float* gate, int64_t gate_stride, const float* up, int64_t up_stride, int64_t cols,
                           Activation activation) {
  start_in_turn();
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4;
  float* x = gate + blockIdx.x * gate_stride + first;
  const int64_t at = blockIdx.x * up_stride + first;  // in up
  if constexpr (kVector) {
    if (first >= cols) return;
    float4 a = *reinterpret_cast<float4*>(x);
    float4 b = {1.0F, 1.0F, 1.0F, 1.0F};
    if (up != nullptr) b = *reinterpret_cast<const float4*>(up + at);
    a.x = activated(a.x, activation) * b.x;
    a.y = activated(a.y, activation) * b.y;
    a.z = activated(a.z, activation) * b.z;
    a.w = activated(a.w, activation) * b.w;
    *reinterpret_cast<float4*>(x) = a;
  } else {
    for (int64_t i = 0; i < 4 && first + i < cols; ++i) {
      x[i] = activated(x[i], activation) * (up == nullptr ? 1.0F : up[at + i]);
    }
  }
}

// Grid: rows by chunks of 256 columns, one thread per element. Bound by memory: 8 bytes per element.
__global__ void soft_cap_kernel(float* x, int64_t stride, int64_t cols, float scale, float cap) {
  start_in_turn();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= cols) return;
  float& value = x[blockIdx.x * stride + i];
  const float scaled = scale * value;
  value = cap > 0.0F ? cap * tanhf(scaled / cap) : scaled;
}

}  // namespace

void CudaBackend::glu(const Matrix& gate, const Matrix& up, Activation activation) {
  const dim3 grid(to_unsigned(gate.rows), to_unsigned(ceil_div<int64_t>(gate.cols, int64_t{kThreads} * 4)));
  const bool vector = gate.cols % 4 == 0 && rows_aligned16(gate) && rows_aligned16(up);
  launch(vector ? glu_kernel<true> : glu_kernel<false>, grid, dim3(kThreads), 0, queue_, typed<float>(gate),
         gate.stride, typed<float>(up), up.stride, gate.cols, activation);
}

void CudaBackend::soft_cap(const Matrix& x, float scale, float cap) {
  const dim3 grid(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(x.cols, kThreads)));
  launch(soft_cap_kernel, grid, dim3(kThreads), 0, queue_, typed<float>(x), x.stride, x.cols, scale, cap);
}

}  // namespace lariat
