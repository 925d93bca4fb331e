#include "kernels/cuda/gemv.cuh"

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ptx.cuh"

// Matrix products of few tokens: every weight is read once. One token, and several in f32, use this kernel;
// several in bf16 use gemv_tiles.cu.
namespace lariat {
namespace {

using namespace cuda;

constexpr int kWarps = 4;

// Weight loads in flight per lane.
template <int kTokens>
constexpr int kLoads = kTokens <= 4 ? 8 : 6;

// Rows of weights per warp: more rows load x less often, but need more registers.
template <int kTokens>
constexpr int kRows = kTokens == 1 ? 4 : 2;

// Blocks per multiprocessor, as registers allow.
template <int kTokens>
constexpr int kBlocks = kTokens == 1   ? 5
                        : kTokens <= 4 ? 4
                                       : 3;

// kStep: 1, or the weights in 16 bytes.
template <class W, int kStep>
struct Weights {
  using Raw = std::conditional_t<kStep == 1, W, uint4>;
  Raw raw;

  __device__ __forceinline__ void load(const W* address) {
    if constexpr (kStep == 1) {
      raw = *address;
    } else {
      raw = load16_weights(address);
    }
  }
  __device__ __forceinline__ void unpack(float (&out)[kStep]) const {
    if constexpr (kStep == 1) {
      out[0] = to_float(raw);
    } else {
      unpack16<W>(raw, out);
    }
  }
};

// Adds this lane's products of several steps of columns, from `first` on, to sum. All weight loads precede
// the first use. kTail: steps from `end` on load column 0 and do not count.
template <class W, class X, int kTokens, int kStep, bool kTail>
__device__ __forceinline__ void multiply_batch(const Gemv& g, const W* const (&w)[kRows<kTokens>], int first,
                                               int end, float (&sum)[kRows<kTokens>][kTokens]) {
  constexpr int kWide = kWarpSize * kStep, kSteps = kLoads<kTokens> / kRows<kTokens>;
  Weights<W, kStep> loaded[kSteps][kRows<kTokens>];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int r = 0; r < kRows<kTokens>; ++r) {
      loaded[s][r].load(kTail && first + s * kWide >= end ? w[r] : w[r] + first + s * kWide);
    }
  }
  const X* x = static_cast<const X*>(g.x) + first;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (kTail && first + s * kWide >= end) break;
    float weights[kRows<kTokens>][kStep];
#pragma unroll
    for (int r = 0; r < kRows<kTokens>; ++r) loaded[s][r].unpack(weights[r]);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float values[kStep];
      load_x<kStep>(x + token_or_last(g, t) * g.x_stride + s * kWide, values);
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
#pragma unroll
        for (int r = 0; r < kRows<kTokens>; ++r) sum[r][t] += values[j] * weights[r][j];
      }
    }
  }
}

// A step is one load of a row by the warp; part p of g.parts has an equal, contiguous share of the steps.
template <class W, class X, int kTokens, int kStep>
__device__ __forceinline__ void accumulate(const Gemv& g, const W* const (&w)[kRows<kTokens>], int part,
                                           float (&sum)[kRows<kTokens>][kTokens]) {
  constexpr int kWide = kWarpSize * kStep;                          // columns of a step
  constexpr int kBatch = kLoads<kTokens> / kRows<kTokens> * kWide;  // columns of a batch
  const int steps = (g.cols + kWide - 1) / kWide, lane = lane_index() * kStep;
  int at = steps * part / g.parts * kWide;
  const int share_end = steps * (part + 1) / g.parts * kWide;
  const int end = share_end < g.cols ? share_end : g.cols;
#pragma unroll 1
  for (; at + kBatch <= end; at += kBatch) {
    multiply_batch<W, X, kTokens, kStep, false>(g, w, at + lane, end, sum);
  }
  if (at < end) multiply_batch<W, X, kTokens, kStep, true>(g, w, at + lane, end, sum);
}

// In a gated unit, half of a warp's rows are from gate, half from up.
template <int kTokens>
__device__ __forceinline__ int rows_of_warp(const Gemv& g) {
  return g.gated ? kRows<kTokens> / 2 : kRows<kTokens>;
}

// Rows after the last repeat the last and are not stored.
template <class W, int kTokens>
__device__ __forceinline__ const W* row_of_warp(const Gemv& g, const GemvProduct& p, int first_row, int r) {
  const bool up = g.gated && r >= kRows<kTokens> / 2;
  const GemvProduct& of = up ? g.product[1] : p;
  const int row = first_row + (up ? r - kRows<kTokens> / 2 : r);
  return static_cast<const W*>(of.w) + (row < p.rows ? row : p.rows - 1) * of.w_stride;
}

// Prefetches the warp's first loads: 4 KiB, a line per lane.
template <class W, int kTokens, int kStep>
__device__ __forceinline__ void prefetch(const Gemv& g, const GemvProduct& p, int first_row, int part) {
  constexpr int kWide = kWarpSize * kStep, kLines = kWarpSize / kRows<kTokens>;
  const int steps = (g.cols + kWide - 1) / kWide;
  const int column =
      steps * part / g.parts * kWide + lane_index() % kLines * (kLineBytes / static_cast<int>(sizeof(W)));
  if (column >= g.cols) return;
  prefetch_l2(row_of_warp<W, kTokens>(g, p, first_row, lane_index() / kLines) + column);
}

// Lane r * kTokens + t stores row r and token t. `partial`: the warps' sums.
template <int kTokens>
__device__ __forceinline__ void store(const Gemv& g, const GemvProduct& p, int first_row,
                                      const float* partial) {
  constexpr int kSums = kRows<kTokens> * kTokens;
  const int lane = lane_index(), token = lane % kTokens;
  const auto total = [&](int at) {
    float sum = partial[at];
    for (int i = 1; i < g.parts; ++i) sum += partial[i * kSums + at];
    return sum;
  };
  const int row = first_row + lane / kTokens;
  if (lane >= rows_of_warp<kTokens>(g) * kTokens || token >= g.tokens || row >= p.rows) return;
  float value = total(lane) + bias_of(p, row);
  if (g.gated) {
    value = activated(value, g.activation) * (total(kSums / 2 + lane) + bias_of(g.product[1], row));
  }
  store_output(g, p, token * p.out_stride + row, value);
}

// A warp, or g.parts warps, computes kRows rows of a product, or half of kRows from gate and half from up.
// Grid: blocks by share_blocks. Bound by memory: weights bypass the caches, x stays in L1. kStep: columns per
// load; 1 if rows of w or x are not aligned to 16 bytes.
template <class W, class X, int kTokens, int kStep>
__global__ void __launch_bounds__(kWarps* kWarpSize, kBlocks<kTokens>)
    gemv_kernel(const __grid_constant__ Gemv g) {
  constexpr int kSums = kRows<kTokens> * kTokens;
  LARIAT_SHARED(float, partial, kWarps* kSums);
  const int warp = warp_index(), part = warp % g.parts;
  const GemvProduct& p = g.product[product_of_block(g)];
  const int group = static_cast<int>(blockIdx.x - p.first_block) * (kWarps / g.parts) + warp / g.parts;
  const int first_row = group * rows_of_warp<kTokens>(g);

  launch_dependents();
  if (first_row < p.rows) prefetch<W, kTokens, kStep>(g, p, first_row, part);
  wait_for_launches();

  float sum[kRows<kTokens>][kTokens] = {};
  if (first_row < p.rows) {
    const W* w[kRows<kTokens>];
#pragma unroll
    for (int r = 0; r < kRows<kTokens>; ++r) w[r] = row_of_warp<W, kTokens>(g, p, first_row, r);
    accumulate<W, X, kTokens, kStep>(g, w, part, sum);
  }
#pragma unroll
  for (int r = 0; r < kRows<kTokens>; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float total = warp_sum(sum[r][t]);
      if (lane_index() == 0) partial[warp * kSums + r * kTokens + t] = total;
    }
  }
  __syncthreads();
  if (part == 0 && first_row < p.rows) store<kTokens>(g, p, first_row, partial + warp * kSums);
}

template <class W, int kTokens, int kStep>
void launch_gemv(const Gemv& g, unsigned blocks, bool bf16, LaunchQueue& queue) {
  auto kernel = gemv_kernel<W, float, kTokens, kStep>;
  if constexpr (std::is_same_v<W, BFloat16> && (kTokens == 1 || kStep == 1)) {
    if (bf16) kernel = gemv_kernel<W, BFloat16, kTokens, kStep>;
  }
  launch(kernel, dim3(blocks), dim3(kWarps * kWarpSize), 0, queue, g);
}

// Several warps share the columns of a row if the rows are too few for the sixteen warps per multiprocessor
// that keep memory busy.
int gemv_parts(std::span<const Product> products, int rows_per_warp, int multiprocessors) {
  int64_t groups = 0;
  for (const Product& product : products) groups += ceil_div<int64_t>(product.w.rows, rows_per_warp);
  int parts = 1;
  while (parts < kWarps && groups * parts < int64_t{16} * multiprocessors) parts *= 2;
  return parts;
}

}  // namespace

CudaBackend::GemvKind CudaBackend::gemv_kind(const Matrix& x, std::span<const Product> products,
                                             DType compute) {
  const DType dtype = products[0].w.dtype;
  const bool same = std::all_of(products.begin(), products.end(),
                                [&](const Product& product) { return product.w.dtype == dtype; });
  if (!same || is_quantized(dtype)) return GemvKind::kNone;
  const bool aligned =
      x.cols % (16 / static_cast<int64_t>(size_of(dtype))) == 0 && rows_aligned16(x) &&
      std::all_of(products.begin(), products.end(), [](const Product& p) { return rows_aligned16(p.w); });
  const bool bf16 = dtype == DType::kBF16 && compute == DType::kBF16;
  if (bf16 && aligned && x.rows > 1 && x.rows <= kMmaTokens) return GemvKind::kMma;
  if (x.rows > kGemvTokens) return GemvKind::kNone;
  return aligned ? GemvKind::kVector : GemvKind::kElement;
}

Matrix CudaBackend::gemv_input(const Matrix& x, DType weights, DType compute) {
  const bool bf16 = weights == DType::kBF16 && compute == DType::kBF16;
  const DType stored = bf16 ? DType::kBF16 : DType::kF32;
  if (x.dtype == stored && compute == stored) return x;
  const Matrix rounded(scratch(Scratch::kGemmX, static_cast<size_t>(x.rows * x.cols) * size_of(stored)),
                       stored, x.rows, x.cols);
  convert(x, compute, rounded);
  return rounded;
}

void CudaBackend::gemv(GemvKind kind, const Matrix& x, std::span<const Product> products, DType compute,
                       const Activation* activation) {
  const bool mma = kind == GemvKind::kMma, element = kind == GemvKind::kElement;
  const DType weights = products[0].w.dtype;
  const Matrix input = gemv_input(x, weights, compute);
  const auto n_products = static_cast<int>(products.size());
  Gemv g = gemv_of(products, activation);
  g.x = input.data;
  g.x_stride = static_cast<int>(input.stride);
  g.tokens = static_cast<int>(x.rows);
  g.cols = static_cast<int>(x.cols);
  if (mma) return gemv_tiles(g, DType::kBF16, n_products, device_.multiprocessors, queue_);
  const int rows = x.rows == 1 && !element ? kRows<1> : kRows<kGemvTokens>;
  const int rows_per_group = g.gated ? rows / 2 : rows;
  g.parts = gemv_parts(products, rows, device_.multiprocessors);
  const unsigned blocks = share_blocks(g, n_products, rows_per_group * (kWarps / g.parts));
  const bool bf16 = input.dtype == DType::kBF16;
  with_dtype(weights, [&]<class W>(W) {
    constexpr int kVector = kPerVector<W>;
    if (element) {
      launch_gemv<W, kGemvTokens, 1>(g, blocks, bf16, queue_);
    } else if (x.rows == 1) {
      launch_gemv<W, 1, kVector>(g, blocks, bf16, queue_);
    } else if (x.rows <= 4) {
      launch_gemv<W, 4, kVector>(g, blocks, bf16, queue_);
    } else {
      launch_gemv<W, kGemvTokens, kVector>(g, blocks, bf16, queue_);
    }
  });
}

}  // namespace lariat
