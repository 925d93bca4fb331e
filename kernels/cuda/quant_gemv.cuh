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

// 1 to 16 tokens; `tiles` blocks.
void quant_gemv_mma(const QuantGemv& g, bool four_bits, unsigned tiles, LaunchQueue& queue);

}  // namespace lariat::cuda
