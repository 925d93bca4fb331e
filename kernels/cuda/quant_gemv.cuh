#pragma once
#include "kernels/cuda/gemv.cuh"
#include "kernels/quant.h"

// Products of a few tokens with quantised weights, by quant_matmul.cu and quant_gemv_mma.cu.
namespace lariat::cuda {

constexpr int kQuantGemvWarps = 8;  // of a block: they take the blocks of a tile in turn

struct QuantProduct {
  const unsigned char* w;
  const void* bias;  // one row, or null
  float* out;
  int64_t out_stride, rows;
  DType bias_dtype;
  unsigned first_block;  // as GemvProduct has it; a block makes a tile of 16 rows
};

// What a launch reads. x in groups: values [tokens][blocks * 64], scales [tokens][blocks * 2].
struct QuantGemv {
  QuantProduct product[kMostProducts];
  const int8_t* x;
  const float* x_scale;
  int64_t blocks, tile_bytes, block_bytes;
  int tokens;
};

// Asks for the first 32 KiB of a tile: about what all warps load first.
__device__ __forceinline__ void prefetch_tile(const unsigned char* tile, int64_t bytes) {
  const int64_t line = int64_t{threadIdx.x} * kLineBytes;
  if (line < bytes) prefetch_l2(tile + line);
}

// This warp's blocks of a tile, kAhead of them loaded before the first is used: multiply(part, block).
template <class Part, int kAhead, class F>
__device__ __forceinline__ void for_blocks_of_warp(const QuantGemv& g, const unsigned char* tile,
                                                   F&& multiply) {
  int64_t block = warp_index();
  for (; block + (kAhead - 1) * kQuantGemvWarps < g.blocks; block += kAhead * kQuantGemvWarps) {
    Part parts[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) parts[i].load(tile + (block + i * kQuantGemvWarps) * g.block_bytes);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) multiply(parts[i], block + i * kQuantGemvWarps);
  }
  for (; block < g.blocks; block += kQuantGemvWarps) {
    Part part;
    part.load(tile + block * g.block_bytes);
    multiply(part, block);
  }
}

// The warps' sums of a tile, partial[warp][token][output], and the bias. For all threads of a block, up to 16
// tokens.
template <int kTokens>
__device__ __forceinline__ void store_tile(const QuantGemv& g, const QuantProduct& p, int64_t tile_index,
                                           const float* partial) {
  constexpr int kRows = static_cast<int>(kQuantRows);
  __syncthreads();
  const int token = static_cast<int>(threadIdx.x) / kRows, output = static_cast<int>(threadIdx.x) % kRows;
  const int64_t row = tile_index * kRows + output;
  if (token >= g.tokens || token >= kTokens || row >= p.rows) return;
  float total = bias_of(p, row);
  for (int warp = 0; warp < kQuantGemvWarps; ++warp) {
    total += partial[(warp * kTokens + token) * kRows + output];
  }
  p.out[token * p.out_stride + row] = total;
}

// 1 to 16 tokens; `tiles` blocks.
void quant_gemv_mma(const QuantGemv& g, bool four_bits, unsigned tiles, LaunchQueue& queue);

}  // namespace lariat::cuda
