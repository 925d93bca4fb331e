#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quant_gemv.cuh"

// Products of 5 to 16 tokens with quantised weights, on tensor cores: an mma of 32 inputs is a group, so that
// its sums are the exact integers that the formula scales (kernels/quant.h). The weights are the A operand,
// the tokens the columns of B. Rows of A may stand for any outputs: row g is output 2 g of the tile and row
// g + 8 output 2 g + 1, whose inputs 4 t .. 4 t + 3 are 8 neighbouring bytes, those of a lane (quad t).
namespace lariat::cuda {
namespace {

constexpr int kWarps = kQuantGemvWarps;
constexpr int kRows = static_cast<int>(kQuantRows);
constexpr int kGroup = 8;           // tokens in an mma
constexpr int kQuadBytes = 4 * 16;  // four inputs of each output
constexpr int kLoads = 16;          // of 8 bytes of weights that a lane has on their way at once

__device__ __forceinline__ uint2 load8_streaming(const unsigned char* address) {
#ifdef __CUDACC__
  return __ldcs(reinterpret_cast<const uint2*>(address));
#else
  return *reinterpret_cast<const uint2*>(address);
#endif
}

// Four 4-bit weights, 0 to 15 each in a byte of its own, less 8: the sign of what is left goes to the upper
// half of the byte.
__device__ __forceinline__ uint32_t signed_bytes(uint32_t nibbles) {
  const uint32_t low = (nibbles & 0x0f0f0f0fU) ^ 0x08080808U;
  return low | (low & 0x08080808U) * 0x1eU;
}

// A lane's part of both groups of a block of a tile.
template <bool kFourBits>
struct Part {
  static constexpr int kLoadsPerGroup = kFourBits ? 1 : 2;  // q4: inputs 16 to 31 in the upper half bytes
  uint2 weights[2][kLoadsPerGroup];
  uint32_t scales[2];  // of outputs 2 g and 2 g + 1, bf16

  __device__ __forceinline__ void load(const unsigned char* block) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
#pragma unroll
      for (int l = 0; l < kLoadsPerGroup; ++l) {
        const int quad = (group * kLoadsPerGroup + l) * 4 + t;
        weights[group][l] = load8_streaming(block + 64 + quad * kQuadBytes + g * 8);
      }
      scales[group] = *reinterpret_cast<const uint32_t*>(block + (group * kRows + 2 * g) * 2);
    }
  }

  // sum[n] += the products with the tokens of group n. x, scale: of the lane's token in each of the operands
  // (B: token g; sums: tokens 2 t and 2 t + 1), the block's first.
  template <int kGroups>
  __device__ __forceinline__ void multiply(const int8_t* const (&x)[kGroups],
                                           const float* const (&x_scale)[kGroups][2],
                                           float (&sum)[kGroups][4]) const {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const uint2 low = weights[group][0], high = weights[group][kLoadsPerGroup - 1];
      uint32_t a[4];
      if constexpr (kFourBits) {
        a[0] = signed_bytes(low.x);
        a[1] = signed_bytes(low.y);
        a[2] = signed_bytes(low.x >> 4);
        a[3] = signed_bytes(low.y >> 4);
      } else {  // less 128: from unsigned to signed
        a[0] = low.x ^ 0x80808080U;
        a[1] = low.y ^ 0x80808080U;
        a[2] = high.x ^ 0x80808080U;
        a[3] = high.y ^ 0x80808080U;
      }
      const float scale[2] = {bits_to_float(scales[group] << 16), bits_to_float(scales[group] & 0xffff0000U)};
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const auto* words = reinterpret_cast<const uint32_t*>(x[n] + group * kQuantGroup);
        int d[4] = {};
        mma_16x8x32(d, a, words[0], words[4]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[n][j] += static_cast<float>(d[j]) * (scale[j / 2] * x_scale[n][j % 2][group]);
        }
      }
    }
  }
};

// Up to 8 kGroups tokens. Grid: a tile of 16 outputs of one of up to three products per block; its warps take
// the tile's blocks in turn. Bound by memory.
template <bool kFourBits, int kGroups>
__global__ void __launch_bounds__(kWarps* kWarpSize, 2)
    quant_gemv_mma_kernel(const __grid_constant__ QuantGemv g) {
  constexpr int kTokens = kGroups * kGroup;
  constexpr int kAhead = kLoads / (2 * Part<kFourBits>::kLoadsPerGroup);  // blocks
  LARIAT_SHARED(float, partial, kWarps* kTokens* kRows);
  const QuantProduct& p = g.product[product_of_block(g)];
  const int64_t tile_index = blockIdx.x - p.first_block;
  const unsigned char* tile = p.w + tile_index * g.tile_bytes;
  launch_dependents();
  prefetch_tile(tile, g.tile_bytes);
  wait_for_launches();

  const int lane_row = lane_index() / 4, t = lane_index() % 4;
  const auto token_at = [&](int token) {  // tokens beyond the last: the last again, not stored
    return static_cast<int64_t>(token < g.tokens ? token : g.tokens - 1) * g.blocks;
  };
  const int8_t* x[kGroups];
  const float* x_scale[kGroups][2];
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    x[n] = g.x + token_at(n * kGroup + lane_row) * kQuantBlock + t * 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) x_scale[n][j] = g.x_scale + token_at(n * kGroup + 2 * t + j) * 2;
  }
  float sum[kGroups][4] = {};
  for_blocks_of_warp<Part<kFourBits>, kAhead>(g, tile, [&](const Part<kFourBits>& part, int64_t block) {
    const int8_t* at[kGroups];
    const float* scale_at[kGroups][2];
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      at[n] = x[n] + block * kQuantBlock;
      scale_at[n][0] = x_scale[n][0] + block * 2;
      scale_at[n][1] = x_scale[n][1] + block * 2;
    }
    part.template multiply<kGroups>(at, scale_at, sum);
  });

#pragma unroll
  for (int i = 0; i < kGroups * 4; ++i) {
    const int token = i / 4 * kGroup + 2 * t + i % 2, output = 2 * lane_row + i % 4 / 2;
    partial[(warp_index() * kTokens + token) * kRows + output] = sum[i / 4][i % 4];
  }
  store_tile<kTokens>(g, p, tile_index, partial);
}

}  // namespace

void quant_gemv_mma(const QuantGemv& g, bool four_bits, unsigned tiles, LaunchQueue& queue) {
  const bool many = g.tokens > kGroup;
  const auto kernel = four_bits ? (many ? quant_gemv_mma_kernel<true, 2> : quant_gemv_mma_kernel<true, 1>)
                                : (many ? quant_gemv_mma_kernel<false, 2> : quant_gemv_mma_kernel<false, 1>);
  launch(kernel, dim3(tiles), dim3(kWarps * kWarpSize), 0, queue, g);
}

}  // namespace lariat::cuda
