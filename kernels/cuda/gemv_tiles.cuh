#pragma once
#include "kernels/cuda/gemv.cuh"

// The kernel that makes products by tiles of 16 rows of weights, whatever those are (Work).
namespace lariat::cuda {

inline constexpr int kWarps = 8;
inline constexpr int kTile = 16;  // rows of w, also in an mma

// The tile of quantised weights (codes.cuh) that a row is the first of.
__device__ __forceinline__ const unsigned char* code_tile(const Gemv& g, const GemvProduct& p,
                                                          int first_row) {
  return static_cast<const unsigned char*>(p.w) + first_row / kTile * g.codes.tile_bytes;
}
// Asks for the first 32 KiB of it: about what all warps load first.
__device__ __forceinline__ void prefetch_code_tile(const Gemv& g, const GemvProduct& p, int first_row) {
  const int line = static_cast<int>(threadIdx.x) * kLineBytes;
  if (line < g.codes.tile_bytes) prefetch_l2(code_tile(g, p, first_row) + line);
}

// A warp's sums of a lane's four outputs, where lanes whose numbers are equal modulo 4 have the same outputs.
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

// Up to Work::kTokens tokens of up to three products; Work::kBlocks blocks share a multiprocessor's
// registers. A block makes Work::kTiles tiles of a product or, where gated, which takes two, one each of gate
// and of up. Grid: blocks by share_blocks; 256 threads; static shared memory for the warps' sums. Bound by
// memory: the weights are streamed past the caches, x stays in L1.
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

  const auto total = [&](int at) {
    float sum = sums[at];
    for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp * kSums + at];
    return sum;
  };
  for (int at = static_cast<int>(threadIdx.x); at < (g.gated ? kPerTile : kSums); at += kWarps * kWarpSize) {
    const int token = at % kPerTile / kTile;
    const int row = first_row + at / kPerTile * kTile + at % kTile;
    if (token >= g.tokens || row >= p.rows) continue;
    float value = total(at) + bias_of(p, row);
    if (g.gated) {
      value = activated(value, g.activation) * (total(kPerTile + at) + bias_of(g.product[1], row));
    }
    store_output(g, p, token * p.out_stride + row, value);
  }
}

using Kernel = void (*)(Gemv);

}  // namespace lariat::cuda
