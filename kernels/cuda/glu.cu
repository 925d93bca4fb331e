#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/output.cuh"

namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;

struct Glu {
  const void *gate, *up;  // up: may be null
  void* out;              // may be gate: a thread reads its elements before it writes them
  int64_t gate_stride, up_stride, out_stride, cols;
  Activation activation;
};

__device__ __forceinline__ float gated(float gate, float up, Activation activation) {
  if (activation != Activation::kClamped) return activated(gate, activation) * up;
  const float most = gate > kClampedLimit ? kClampedLimit : gate;  // keeps a NaN
  const float within = up > kClampedLimit ? kClampedLimit : up < -kClampedLimit ? -kClampedLimit : up;
  return most / (1.0F + expf(-kClampedSlope * most)) * (1.0F + within);
}

template <class In>
constexpr int kNeighbours = kPerVector<In>;

template <class Out>
__device__ __forceinline__ void store_neighbours(Out* to, const float (&v)[4]) {
  store4(to, {v[0], v[1], v[2], v[3]});
}
__device__ __forceinline__ void store_neighbours(BFloat16* to, const float (&v)[8]) {
  store16(to, {pack2<BFloat16>(v[0], v[1]), pack2<BFloat16>(v[2], v[3]), pack2<BFloat16>(v[4], v[5]),
               pack2<BFloat16>(v[6], v[7])});
}

// Grid: rows by chunks of 256 threads' elements. kVector: rows aligned to 16 bytes, cols a multiple of a
// thread's elements.
template <class In, class Out, bool kVector>
__global__ void glu_kernel(const __grid_constant__ Glu g) {
  constexpr int kN = kNeighbours<In>;
  start_in_turn();
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kN;
  const In* x = static_cast<const In*>(g.gate) + blockIdx.x * g.gate_stride + first;
  const In* up = static_cast<const In*>(g.up) + (g.up == nullptr ? 0 : blockIdx.x * g.up_stride + first);
  Out* out = static_cast<Out*>(g.out) + blockIdx.x * g.out_stride + first;
  if constexpr (kVector) {
    if (first >= g.cols) return;
    float a[kN], b[kN];
    for (float& factor : b) factor = 1.0F;
    unpack16<In>(load16(x), a);
    if (g.up != nullptr) unpack16<In>(load16(up), b);
#pragma unroll
    for (int i = 0; i < kN; ++i) a[i] = gated(a[i], b[i], g.activation);
    store_neighbours(out, a);
  } else {
    for (int64_t i = 0; i < kN && first + i < g.cols; ++i) {
      const float factor = g.up == nullptr ? 1.0F : to_float(up[i]);
      out[i] = from_float<Out>(gated(to_float(x[i]), factor, g.activation));
    }
  }
}

template <class In, class Out>
void launch_glu(const Glu& g, int64_t rows, bool aligned, LaunchQueue& queue) {
  constexpr int64_t kN = kNeighbours<In>;
  const dim3 grid(to_unsigned(rows), to_unsigned(ceil_div<int64_t>(g.cols, kThreads * kN)));
  const bool vector = aligned && g.cols % kN == 0;
  launch(vector ? glu_kernel<In, Out, true> : glu_kernel<In, Out, false>, grid, dim3(kThreads), 0, queue, g);
}

// Grid: rows by chunks of 256 columns.
__global__ void xielu_kernel(float* x, int64_t stride, int64_t cols, Xielu p) {
  start_in_turn();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= cols) return;
  float& at = x[blockIdx.x * stride + i];
  const float value = at;
  const float curve = value > 0.0F ? p.positive * value * value
                                   : p.negative * (expm1f(value > p.eps ? p.eps : value) - value);
  at = curve + p.beta * value;
}

// Grid: rows by chunks of 256 columns.
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
  g.gate = gate.data;
  g.up = up.data;
  g.out = out.data;
  g.gate_stride = gate.stride;
  g.up_stride = up.stride;
  g.out_stride = out.stride;
  g.cols = gate.cols;
  g.activation = activation;
  const bool aligned = rows_aligned16(gate) && rows_aligned16(up) && rows_aligned16(out);
  // Products of a gated linear; out is bf16 too.
  if (gate.dtype == DType::kBF16) return launch_glu<BFloat16, BFloat16>(g, gate.rows, aligned, queue_);
  with_output_dtype(out.dtype,
                    [&]<class Out>(Out) { launch_glu<float, Out>(g, gate.rows, aligned, queue_); });
}

void CudaBackend::xielu(const Matrix& x, const Xielu& parameters) {
  const dim3 grid(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(x.cols, kThreads)));
  launch(xielu_kernel, grid, dim3(kThreads), 0, queue_, typed<float>(x), x.stride, x.cols, parameters);
}

void CudaBackend::soft_cap(const Matrix& x, float scale, float cap) {
  const dim3 grid(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(x.cols, kThreads)));
  launch(soft_cap_kernel, grid, dim3(kThreads), 0, queue_, typed<float>(x), x.stride, x.cols, scale, cap);
}

}  // namespace lariat
