#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

// The ops that work element by element: glu and soft_cap.
namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;

// Silu: z = x. Gelu: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), so z = 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
__device__ __forceinline__ float gated(float x, float up, Activation activation) {
  const float z = activation == Activation::kSilu ? x : x * (1.59576912F + 1.59576912F * 0.044715F * (x * x));
  return x / (1.0F + expf(-z)) * up;
}

// Grid: rows by chunks of 1024 columns; 256 threads of four neighbouring elements each. Bound by memory: 12
// bytes per element. kVector: rows start at multiples of 16 bytes and cols is a multiple of 4.
template <bool kVector>
__global__ void glu_kernel(float* gate, int64_t gate_stride, const float* up, int64_t up_stride, int64_t cols,
                           Activation activation) {
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4;
  float* x = gate + blockIdx.x * gate_stride + first;
  const float* y = up + blockIdx.x * up_stride + first;
  if constexpr (kVector) {
    if (first >= cols) return;
    float4 a = *reinterpret_cast<float4*>(x);
    const float4 b = *reinterpret_cast<const float4*>(y);
    a.x = gated(a.x, b.x, activation);
    a.y = gated(a.y, b.y, activation);
    a.z = gated(a.z, b.z, activation);
    a.w = gated(a.w, b.w, activation);
    *reinterpret_cast<float4*>(x) = a;
  } else {
    for (int64_t i = 0; i < 4 && first + i < cols; ++i) x[i] = gated(x[i], y[i], activation);
  }
}

// Grid: rows by chunks of 256 columns, one thread per element. Bound by memory: 8 bytes per element.
__global__ void soft_cap_kernel(float* x, int64_t stride, int64_t cols, float scale, float cap) {
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
