#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/output.cuh"

// The ops that work element by element: glu and soft_cap.
namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;

struct Glu {
  const float *gate, *up;  // up: may be null
  void* out;               // may be gate: a thread reads its elements before it writes them
  int64_t gate_stride, up_stride, out_stride, cols;
  Activation activation;
};

// Grid: rows by chunks of 1024 columns; 256 threads of four neighbouring elements each. Bound by memory: 12
// bytes per element, 10 of them where out is bf16. kVector: rows start at multiples of 16 bytes and cols is a
// multiple of 4.
template <class Out, bool kVector>
__global__ void glu_kernel(const __grid_constant__ Glu g) {
  start_in_turn();
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4;
  const float* x = g.gate + blockIdx.x * g.gate_stride + first;
  const int64_t at = blockIdx.x * g.up_stride + first;  // in up
  Out* out = static_cast<Out*>(g.out) + blockIdx.x * g.out_stride + first;
  if constexpr (kVector) {
    if (first >= g.cols) return;
    float4 a = *reinterpret_cast<const float4*>(x);
    float4 b = {1.0F, 1.0F, 1.0F, 1.0F};
    if (g.up != nullptr) b = *reinterpret_cast<const float4*>(g.up + at);
    a.x = activated(a.x, g.activation) * b.x;
    a.y = activated(a.y, g.activation) * b.y;
    a.z = activated(a.z, g.activation) * b.z;
    a.w = activated(a.w, g.activation) * b.w;
    store4(out, a);
  } else {
    for (int64_t i = 0; i < 4 && first + i < g.cols; ++i) {
      out[i] = from_float<Out>(activated(x[i], g.activation) * (g.up == nullptr ? 1.0F : g.up[at + i]));
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

void CudaBackend::glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) {
  Glu g = zeroed<Glu>();
  g.gate = typed<float>(gate);
  g.up = typed<float>(up);
  g.out = out.data;
  g.gate_stride = gate.stride;
  g.up_stride = up.stride;
  g.out_stride = out.stride;
  g.cols = gate.cols;
  g.activation = activation;
  const dim3 grid(to_unsigned(gate.rows), to_unsigned(ceil_div<int64_t>(gate.cols, int64_t{kThreads} * 4)));
  const bool vector = gate.cols % 4 == 0 && rows_aligned16(gate) && rows_aligned16(up) && rows_aligned16(out);
  with_output_dtype(out.dtype, [&]<class Out>(Out) {
    launch(vector ? glu_kernel<Out, true> : glu_kernel<Out, false>, grid, dim3(kThreads), 0, queue_, g);
  });
}

void CudaBackend::soft_cap(const Matrix& x, float scale, float cap) {
  const dim3 grid(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(x.cols, kThreads)));
  launch(soft_cap_kernel, grid, dim3(kThreads), 0, queue_, typed<float>(x), x.stride, x.cols, scale, cap);
}

}  // namespace lariat
