#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

// Matrix products of a few tokens: every weight is read once, at the speed of memory.
namespace lariat {
namespace {

using namespace cuda;

struct Gemv {
  const void* w;  // [rows][cols]
  const float* x;
  const void* bias;  // one row, or null
  DType bias_dtype;
  float* out;
  int64_t w_stride, x_stride, out_stride, rows, cols;
  int tokens;
  int parts;  // warps that share the columns of a row: 1, 2 or 4
};

constexpr int kWarps = 4;
constexpr int kRows = 2;  // rows of w per warp: enough reuse of x that its loads from L1 do not matter

struct GemvShape {
  int parts;
  dim3 grid;
};

// The one place that decides a launch: a warp per two rows, or several warps per two rows when there are too
// few rows to have sixteen warps on every multiprocessor, which is what it takes to keep memory busy.
GemvShape gemv_shape(int64_t rows, int multiprocessors) {
  const int64_t row_groups = ceil_div<int64_t>(rows, kRows);
  int parts = 1;
  while (parts < kWarps && row_groups * parts < int64_t{16} * multiprocessors) parts *= 2;
  return {parts, dim3(to_unsigned(ceil_div<int64_t>(row_groups, kWarps / parts)))};
}

// The part of kRows x kTokens dot products that falls to this lane. C: what x is rounded to.
template <class W, class C, int kTokens, int kStep>
__device__ __forceinline__ void accumulate(const Gemv& g, int64_t first_row, int part,
                                           float (&sum)[kRows][kTokens]) {
  const auto* w = static_cast<const W*>(g.w);
  const int lane = lane_index();
  const int64_t step = int64_t{g.parts} * kWarpSize * kStep;
#pragma unroll 4
  for (int64_t i = (int64_t{part} * kWarpSize + lane) * kStep; i < g.cols; i += step) {
    float weights[kRows][kStep];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first_row + r < g.rows ? first_row + r : g.rows - 1;
      load_weights<W, kStep>(w + row * g.w_stride + i, weights[r]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const int64_t token = t < g.tokens ? t : g.tokens - 1;
      float x[kStep];
      load_x<kStep>(g.x + token * g.x_stride + i, x);
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        const float value = to_float(from_float<C>(x[j]));
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[r][t] += value * weights[r][j];
      }
    }
  }
}

// out[t][o] for up to kTokens tokens. Grid: gemv_shape; 128 threads; static shared memory for the parts'
// sums. Bound by memory: the weights are streamed past the caches, x stays in L1. kStep: columns per load; 1
// when rows of w or x are not aligned to 16 bytes.
template <class W, class C, int kTokens, int kStep>
__global__ void __launch_bounds__(kWarps* kWarpSize) gemv_kernel(const Gemv g) {
  constexpr int kSums = kRows * kTokens;
  LARIAT_SHARED(float, partial, kWarps* kSums);
  const int warp = warp_index(), lane = lane_index();
  const int part = warp % g.parts;
  const int64_t groups_per_block = kWarps / g.parts;
  const int64_t first_row = (blockIdx.x * groups_per_block + warp / g.parts) * kRows;

  float sum[kRows][kTokens] = {};
  if (first_row < g.rows) accumulate<W, C, kTokens, kStep>(g, first_row, part, sum);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float total = warp_sum(sum[r][t]);
      if (lane == 0) partial[warp * kSums + r * kTokens + t] = total;
    }
  }
  __syncthreads();
  const int64_t row = first_row + lane / kTokens;
  const int token = lane % kTokens;
  if (part != 0 || lane >= kSums || row >= g.rows || token >= g.tokens) return;
  float total = g.bias == nullptr ? 0.0F : load_any(g.bias, g.bias_dtype, row);
  for (int p = 0; p < g.parts; ++p) total += partial[(warp + p) * kSums + lane];
  g.out[token * g.out_stride + row] = total;
}

template <class W, int kTokens, int kStep>
void launch_gemv(const Gemv& g, dim3 grid, DType compute, LaunchQueue& queue) {
  const dim3 block(kWarps * kWarpSize);
  if constexpr (kTokens == 1) {
    with_dtype(compute, [&]<class C>(C) { launch(gemv_kernel<W, C, 1, kStep>, grid, block, 0, queue, g); });
  } else {  // x has been rounded already
    launch(gemv_kernel<W, float, kTokens, kStep>, grid, block, 0, queue, g);
  }
}

}  // namespace

void CudaBackend::gemv(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
                       const Matrix& out) {
  const bool aligned = w.cols % (16 / static_cast<int64_t>(size_of(w.dtype))) == 0 && rows_aligned16(w) &&
                       rows_aligned16(x) && x.cols % 4 == 0;
  Matrix rounded = x;
  if ((x.rows > 1 || !aligned) && compute != DType::kF32) {  // else the one token is rounded on the way
    rounded = Matrix(scratch(Scratch::kGemmX, static_cast<size_t>(x.rows * x.cols) * sizeof(float)),
                     DType::kF32, x.rows, x.cols);
    convert(x, compute, rounded);
  }
  const GemvShape shape = gemv_shape(w.rows, device_.multiprocessors);
  Gemv g = zeroed<Gemv>();
  g.w = w.data;
  g.x = typed<float>(rounded);
  g.bias = bias.data;
  g.bias_dtype = bias.dtype;
  g.out = typed<float>(out);
  g.w_stride = w.stride;
  g.x_stride = rounded.stride;
  g.out_stride = out.stride;
  g.rows = w.rows;
  g.cols = w.cols;
  g.tokens = static_cast<int>(x.rows);
  g.parts = shape.parts;
  with_dtype(w.dtype, [&]<class W>(W) {
    constexpr int kVector = kPerVector<W>;
    if (!aligned) {
      launch_gemv<W, kGemvTokens, 1>(g, shape.grid, compute, queue_);
    } else if (x.rows == 1) {
      launch_gemv<W, 1, kVector>(g, shape.grid, compute, queue_);
    } else if (x.rows <= 4) {
      launch_gemv<W, 4, kVector>(g, shape.grid, compute, queue_);
    } else {
      launch_gemv<W, kGemvTokens, kVector>(g, shape.grid, compute, queue_);
    }
  });
}

}  // namespace lariat
