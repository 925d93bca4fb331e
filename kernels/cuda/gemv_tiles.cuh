#pragma once
#include "kernels/cuda/gemv.cuh"

// Kernel for products by tiles of 16 rows of any format (Work).
namespace lariat::cuda {

inline constexpr int kWarps = 8;
inline constexpr int kTile = 16;  // rows of w per tile and per mma

// An expert's work: as Gemv, but `ids` pick the rows of x.
struct ExpertRows {
  const Codes& codes;
  const void* x;
  const int8_t* groups;
  const float* group_scales;
  int blocks;
  const int32_t* ids;  // one row per token of Work
};

__device__ __forceinline__ int64_t token_or_last(const ExpertRows& g, int token) { return g.ids[token]; }
// Token of a one-token Gemv, or an expert's first row.
__device__ __forceinline__ int only_token(const Gemv&) { return 0; }
__device__ __forceinline__ int64_t only_token(const ExpertRows& g) { return g.ids[0]; }

template <class G>
__device__ __forceinline__ const unsigned char* code_tile(const G& g, const GemvProduct& p, int first_row) {
  return static_cast<const unsigned char*>(p.w) + first_row / kTile * g.codes.tile_bytes;
}
// Prefetches the first 32 KiB of the tile.
__device__ __forceinline__ void prefetch_code_tile(const Gemv& g, const GemvProduct& p, int first_row) {
  const int line = static_cast<int>(threadIdx.x) * kLineBytes;
  if (line < g.codes.tile_bytes) prefetch_l2(code_tile(g, p, first_row) + line);
}

// Stores a warp's sums; lanes equal modulo 4 have the same outputs.
template <int kTokens>
__device__ __forceinline__ void store_dots(const float (&sum)[kTokens][4], float* sums) {
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float total = sum[t][j];
      for (int lanes = 4; lanes < kWarpSize; lanes *= 2) total += __shfl_xor_sync(kFullWarp, total, lanes);
      if (lane_index() < 4) sums[t * kTile + lane_index() * 4 + j] = total;
    }
  }
}

template <int kSums>
__device__ __forceinline__ float sum_of_warps(const float* sums, int at) {
  float sum = sums[at];
  for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp * kSums + at];
  return sum;
}

// A block computes Work::kTiles tiles of one of up to three products or, if gated, one tile of gate and one
// of up, for up to Work::kTokens tokens. Work::kBlocks blocks share a multiprocessor's registers. Grid:
// blocks by share_blocks. Bound by memory: weights bypass the caches, x stays in L1.
template <class Work>
__global__ void __launch_bounds__(kWarps* kWarpSize, Work::kBlocks)
    gemv_tiles_kernel(const __grid_constant__ Gemv g) {
  constexpr int kPerTile = Work::kTokens * kTile, kSums = Work::kTiles * kPerTile;
  LARIAT_SHARED(float, sums, kWarps* kSums);  // [warp][tile][token][row]
  const GemvProduct& p = g.product[product_of_block(g)];
  const int rows_per_block = g.gated ? kTile : Work::kTiles * kTile;
  const int first_row = static_cast<int>(blockIdx.x - p.first_block) * rows_per_block;
  launch_dependents();
  Work::prefetch(g, p, first_row);
  wait_for_launches();

  Work work = {};
  work.multiply(g, p, first_row);
  work.store(sums + warp_index() * kSums);
  __syncthreads();

  for (int at = static_cast<int>(threadIdx.x); at < (g.gated ? kPerTile : kSums); at += kWarps * kWarpSize) {
    const int token = at % kPerTile / kTile;
    const int row = first_row + at / kPerTile * kTile + at % kTile;
    if (token >= g.tokens || row >= p.rows) continue;
    float value = sum_of_warps<kSums>(sums, at) + bias_of(p, row);
    if (g.gated) {
      value = activated(value, g.activation) *
              (sum_of_warps<kSums>(sums, kPerTile + at) + bias_of(g.product[1], row));
    }
    store_output(g, p, token * p.out_stride + row, value);
  }
}

// The same tiles for grouped_linear, Work::kTokens rows of an expert at a time. Grid: x = tiles; y:
// expert_of_block. Bound by memory for few tokens.
template <class Work>
__global__ void __launch_bounds__(kWarps* kWarpSize, 2)
    grouped_tiles_kernel(const __grid_constant__ Gemv g, const __grid_constant__ Grouped p,
                         const __grid_constant__ Experts experts) {
  constexpr int kTokens = Work::kTokens, kSums = kTokens * kTile;
  static_assert(kSums <= kWarps * kWarpSize);
  LARIAT_SHARED(float, sums, kWarps* kSums);  // [warp][row][output]
  LARIAT_SHARED(int32_t, ids, kWindow);
  LARIAT_SHARED(int32_t, x_ids, kTokens);
  LARIAT_SHARED(int, found, 2);
  start_in_turn();
  const int32_t expert = expert_of_block(p);
  if (expert < p.first || expert >= p.first + p.count) return;
  GemvProduct product = {};
  product.w = experts.value[expert - p.first];
  const int first_row = static_cast<int>(blockIdx.x) * kTile, thread = static_cast<int>(threadIdx.x);
  for (int64_t window = 0; window < p.rows; window += kWindow) {
    const int count = find_rows<kWarps * kWarpSize>(p, expert, window, ids, found);
    if (count < 0) return;
#pragma unroll 1
    for (int first = 0; first < count; first += kTokens) {
      const int some = count - first < kTokens ? count - first : kTokens;
      if (thread < kTokens) x_ids[thread] = ids[first + (thread < some ? thread : some - 1)] / p.per_x;
      __syncthreads();
      Work work = {};
      work.multiply(ExpertRows{g.codes, g.x, g.groups, g.group_scales, g.blocks, x_ids}, product, first_row);
      work.store(sums + warp_index() * kSums);
      __syncthreads();
      const int row = first_row + thread % kTile;  // one thread per sum
      if (thread / kTile < some && row < p.n)
        store_grouped(p, expert, ids[first + thread / kTile], row, sum_of_warps<kSums>(sums, thread));
    }
    __syncthreads();
  }
}

struct Kernels {
  void (*plain)(Gemv);
  void (*grouped)(Gemv, Grouped, Experts);
};
template <class Work>
Kernels kernels_of() {
  return {gemv_tiles_kernel<Work>, grouped_tiles_kernel<Work>};
}

inline void launch_grouped(const Kernels& kernels, const Gemv& g, const Grouped& p, const Experts& experts,
                           LaunchQueue& queue) {
  const dim3 grid(to_unsigned(ceil_div<int64_t>(p.n, kTile)), to_unsigned(p.by_row ? p.rows : p.count));
  launch(kernels.grouped, grid, dim3(kWarps * kWarpSize), 0, queue, g, p, experts);
}

}  // namespace lariat::cuda
