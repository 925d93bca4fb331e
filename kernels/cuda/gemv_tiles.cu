#include "kernels/cuda/gemv_tiles.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/quant.h"

// Products of few tokens by tiles of 16 rows: bf16 on tensor cores; quantized on tensor cores or, for up to 4
// tokens, by byte dot products. The eight warps of a block share the columns of its tiles.
namespace lariat::cuda {
namespace {

constexpr int kGroup = 8;  // tokens per mma
static_assert(kTile == kQuantRows);

// --- bf16 weights ----------------------------------------------------------------------------------------
// Lane 4 g + t loads columns 8 t .. 8 t + 7 (16 bytes) of 32 adjacent columns, for rows g and g + 8 of w and
// for token g. The first four words are columns 2t, 2t+1, 2t+8 and 2t+9 of one mma, the other four those
// columns of a second.

constexpr int kColumns = 32;  // per 16-byte load of every lane
constexpr int kPerLane = 8;   // columns per lane

// A gated unit has gate and up in halves. Rows after the last repeat the last.
__device__ __forceinline__ const BFloat16* row_of_block(const Gemv& g, const GemvProduct& p, int first_row,
                                                        int r) {
  const bool up = g.gated && r >= kTile;
  const GemvProduct& of = up ? g.product[1] : p;
  const int row = first_row + (up ? r - kTile : r), last = p.rows - 1;
  return static_cast<const BFloat16*>(of.w) + (row < last ? row : last) * of.w_stride;
}

// kTileCount x kGroups products of 16 rows with 8 tokens.
template <int kTileCount, int kGroups>
struct Bf16Mma {
  static constexpr int kTiles = kTileCount, kTokens = kGroups * kGroup, kBlocks = 2;
  static constexpr int kLoads = 8;                      // 16-byte loads of weights in flight
  static constexpr int kAhead = kLoads / (2 * kTiles);  // adjacent loads of a row
  static constexpr int kBatch = kAhead * kColumns;      // columns

  const BFloat16* w[kTiles][2];  // rows g and g + 8
  const BFloat16* x[kGroups];    // token g of each group
  float d[kTiles][kGroups][4];

  // Prefetches the warp's first 4 KiB, a line per lane.
  static __device__ __forceinline__ void prefetch(const Gemv& g, const GemvProduct& p, int first_row) {
    constexpr int kPerLine = kLineBytes / 2, kLines = 2 / kTiles;  // of a row
    const int column = (warp_index() * kLines + lane_index() % kLines) * kPerLine;
    if (column < g.cols) prefetch_l2(row_of_block(g, p, first_row, lane_index() / kLines) + column);
  }

  // All loads precede the first use. kTail: zeros after the last column.
  template <bool kTail>
  __device__ __forceinline__ void multiply_batch(int first, int columns_left) {
    uint4 weights[kAhead][kTiles][2], tokens[kAhead][kGroups];
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      const int at = first + c * kColumns;
      const bool there = !kTail || c * kColumns < columns_left;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        uint4& v = weights[c][i / 2][i % 2];
        if constexpr (kTail) v = {0, 0, 0, 0};
        if (there) v = load16_weights(w[i / 2][i % 2] + at);
      }
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        if constexpr (kTail) tokens[c][n] = {0, 0, 0, 0};
        if (there) tokens[c][n] = load16(x[n] + at);
      }
    }
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 low = weights[c][tile][0], high = weights[c][tile][1];
        const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          mma_16x8x16<BFloat16>(d[tile][n], a[0], tokens[c][n].x, tokens[c][n].y);
          mma_16x8x16<BFloat16>(d[tile][n], a[1], tokens[c][n].z, tokens[c][n].w);
        }
      }
    }
  }

  __device__ __forceinline__ void multiply(const Gemv& g, const GemvProduct& p, int first_row) {
    const int lane_row = lane_index() / 4, column = lane_index() % 4 * kPerLane;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      w[i / 2][i % 2] = row_of_block(g, p, first_row, lane_row + i * 8) + column;
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      x[n] =
          static_cast<const BFloat16*>(g.x) + token_or_last(g, n * kGroup + lane_row) * g.x_stride + column;
    }
    const int whole = g.cols / kBatch;
    int batch = warp_index();
#pragma unroll 1
    for (; batch < whole; batch += kWarps) multiply_batch<false>(batch * kBatch, 0);
    const int first = batch * kBatch;
    if (first < g.cols) multiply_batch<true>(first, g.cols - first - column);
  }

  __device__ __forceinline__ void store(float* sums) const {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < kTiles * kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[(i * kGroup + 2 * t + j % 2) * kTile + g + j / 2 * 8] = d[i / kGroups][i % kGroups][j];
      }
    }
  }
};

// --- quantized weights: a group's sums are the exact integers of the formula -----------------------------

template <bool kFourBits>
struct QuantTile {
  static constexpr int kTiles = 1;
  static constexpr int kBlockBytes = 64 + (kFourBits ? 512 : 1024);

  static __device__ __forceinline__ const unsigned char* at(const Gemv& g, const GemvProduct& p,
                                                            int first_row) {
    return static_cast<const unsigned char*>(p.w) + int64_t{first_row / kTile} * g.blocks * kBlockBytes;
  }
  // Prefetches the first 32 KiB of a tile.
  static __device__ __forceinline__ void prefetch(const Gemv& g, const GemvProduct& p, int first_row) {
    const int line = static_cast<int>(threadIdx.x) * kLineBytes;
    if (line < g.blocks * kBlockBytes) prefetch_l2(at(g, p, first_row) + line);
  }
  // Calls multiply(part, block) for this warp's blocks of a tile.
  template <class Part, int kAhead, class F>
  static __device__ __forceinline__ void for_blocks_of_warp(const Gemv& g, const GemvProduct& p,
                                                            int first_row, F&& multiply) {
    const unsigned char* tile = at(g, p, first_row);
    int block = warp_index();
    for (; block + (kAhead - 1) * kWarps < g.blocks; block += kAhead * kWarps) {
      Part parts[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) parts[i].load(tile + int64_t{block + i * kWarps} * kBlockBytes);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) multiply(parts[i], block + i * kWarps);
    }
    for (; block < g.blocks; block += kWarps) {
      Part part;
      part.load(tile + int64_t{block} * kBlockBytes);
      multiply(part, block);
    }
  }
};

// Converts four weights to signed bytes: 8-bit values minus 128; 4-bit values, one per byte, minus 8.
__device__ __forceinline__ uint32_t signed_bytes8(uint32_t bytes) { return bytes ^ 0x80808080U; }
__device__ __forceinline__ uint32_t signed_bytes4(uint32_t nibbles) {
  const uint32_t low = (nibbles & 0x0f0f0f0fU) ^ 0x08080808U;
  return low | (low & 0x08080808U) * 0x1eU;
}

// An mma of 32 inputs is a group. The weights are the A operand, the tokens the columns of B. Row g of A is
// output 2 g of the tile and row g + 8 output 2 g + 1, whose inputs 4 t .. 4 t + 3 are 8 adjacent bytes of
// one lane.
template <bool kFourBits, int kGroups>
struct QuantMma : QuantTile<kFourBits> {
  static constexpr int kTokens = kGroups * kGroup, kBlocks = 2;
  static constexpr int kLoads = 16;                         // 8-byte loads in flight
  static constexpr int kLoadsPerGroup = kFourBits ? 1 : 2;  // q4: upper nibbles are inputs 16 to 31
  static constexpr int kQuadBytes = 4 * kTile;              // four inputs of each output

  float sum[kGroups][4];

  // A lane's share of both groups of a block.
  struct Part {
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
        scales[group] = *reinterpret_cast<const uint32_t*>(block + (group * kTile + 2 * g) * 2);
      }
    }
    __device__ __forceinline__ void operand(int group, uint32_t (&a)[4]) const {
      const uint2 low = weights[group][0], high = weights[group][kLoadsPerGroup - 1];
      a[0] = kFourBits ? signed_bytes4(low.x) : signed_bytes8(low.x);
      a[1] = kFourBits ? signed_bytes4(low.y) : signed_bytes8(low.y);
      a[2] = kFourBits ? signed_bytes4(low.x >> 4) : signed_bytes8(high.x);
      a[3] = kFourBits ? signed_bytes4(low.y >> 4) : signed_bytes8(high.y);
    }
  };

  __device__ __forceinline__ void multiply(const Gemv& g, const GemvProduct& p, int first_row) {
    const int lane_row = lane_index() / 4, t = lane_index() % 4;
    const int8_t* x[kGroups];          // B: token g
    const float* x_scale[kGroups][2];  // sums: tokens 2 t and 2 t + 1
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      x[n] = g.groups + token_or_last(g, n * kGroup + lane_row) * g.blocks * int{kQuantBlock} + t * 4;
#pragma unroll
      for (int j = 0; j < 2; ++j)
        x_scale[n][j] = g.group_scales + token_or_last(g, n * kGroup + 2 * t + j) * g.blocks * 2;
    }
    constexpr int kAhead = kLoads / (2 * kLoadsPerGroup);  // blocks
    this->template for_blocks_of_warp<Part, kAhead>(g, p, first_row, [&](const Part& part, int block) {
      const int8_t* at[kGroups];
      const float* scale_at[kGroups][2];
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        at[n] = x[n] + block * int64_t{kQuantBlock};
        scale_at[n][0] = x_scale[n][0] + block * 2;
        scale_at[n][1] = x_scale[n][1] + block * 2;
      }
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        uint32_t a[4];
        part.operand(group, a);
        const float scale[2] = {bits_to_float(part.scales[group] << 16),
                                bits_to_float(part.scales[group] & 0xffff0000U)};
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          const auto* words = reinterpret_cast<const uint32_t*>(at[n] + group * kQuantGroup);
          int d[4] = {};
          mma_16x8x32(d, a, words[0], words[4]);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float its_scale = scale_at[n][j % 2][group];
            sum[n][j] += static_cast<float>(d[j]) * (scale[j / 2] * its_scale);
          }
        }
      }
    });
  }

  __device__ __forceinline__ void store(float* sums) const {
    const int lane_row = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
      const int token = i / 4 * kGroup + 2 * t + i % 2, output = 2 * lane_row + i % 4 / 2;
      sums[token * kTile + output] = sum[i / 4][i % 4];
    }
  }
};

template <bool kFourBits, int kMostTokens>
struct QuantDots : QuantTile<kFourBits> {
  static constexpr int kTokens = kMostTokens, kBlocks = 3;
  static constexpr int kOutputs = 4;  // outputs per lane: 16 bytes of 4 inputs each
  static constexpr int kAhead = 4;    // blocks in flight

  float sum[kTokens][kOutputs];

  // A lane's 16 bytes of weights of each group (q4: of one group).
  struct Part {
    static constexpr int kLoads = kFourBits ? 1 : 2;
    uint4 weights[kLoads];
    uint64_t scales[kLoads];  // four bf16

    __device__ __forceinline__ void load(const unsigned char* block) {
      const int lane = lane_index(), output = lane % 4 * kOutputs;
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const int group = kFourBits ? lane / 16 : l;
        weights[l] = load16_streaming(block + 64 + l * 512 + lane * 16);
        scales[l] = *reinterpret_cast<const uint64_t*>(block + (group * kTile + output) * 2);
      }
    }
  };

  __device__ __forceinline__ void multiply_part(const Gemv& g, const Part& part, int block) {
    const int lane = lane_index();
#pragma unroll
    for (int l = 0; l < Part::kLoads; ++l) {
      const int group = kFourBits ? lane / 16 : l, quad = kFourBits ? lane % 16 / 4 : lane / 4;
      const uint4 w = part.weights[l];
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};
      float scale[kOutputs];
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        scale[j] = to_float(BFloat16{static_cast<uint16_t>(part.scales[l] >> (16 * j))});
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int at = (token_or_last(g, t) * g.blocks + block) * 2 + group;
        const auto* x = reinterpret_cast<const uint32_t*>(g.groups + at * kQuantGroup);
        const float x_scale = g.group_scales[at];
        const uint32_t low = x[quad], high = kFourBits ? x[quad + 4] : 0;
        const int offset = kFourBits ? -dot4(0x08080808U, low, dot4(0x08080808U, high, 0)) : 0;
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          const int s =
              kFourBits ? dot4(words[j] & 0x0f0f0f0fU, low, dot4(words[j] >> 4 & 0x0f0f0f0fU, high, offset))
                        : dot4(signed_bytes8(words[j]), low, 0);
          sum[t][j] += static_cast<float>(s) * (scale[j] * x_scale);
        }
      }
    }
  }

  __device__ __forceinline__ void multiply(const Gemv& g, const GemvProduct& p, int first_row) {
    this->template for_blocks_of_warp<Part, kAhead>(
        g, p, first_row, [&](const Part& part, int block) { multiply_part(g, part, block); });
  }

  __device__ __forceinline__ void store(float* sums) const { store_dots(sum, sums); }
};

// --- which kernel ----------------------------------------------------------------------------------------

using Kernel = void (*)(Gemv);

template <bool kFourBits>
Kernel quant_kernel(int tokens) {
  if (tokens == 1) return gemv_tiles_kernel<QuantDots<kFourBits, 1>>;
  if (tokens <= 4) return gemv_tiles_kernel<QuantDots<kFourBits, 4>>;
  return tokens <= kGroup ? gemv_tiles_kernel<QuantMma<kFourBits, 1>>
                          : gemv_tiles_kernel<QuantMma<kFourBits, 2>>;
}

}  // namespace

void gemv_tiles(Gemv& g, DType w, int n_products, int multiprocessors, LaunchQueue& queue) {
  // Two tiles share loads of x; one per block fills the device with fewer rows.
  int64_t rows = 0;
  for (int i = 0; i < n_products; ++i) rows += g.product[i].rows;
  const bool bf16 = w == DType::kBF16, many = g.tokens > kGroup;
  const bool two = bf16 && (g.gated || rows >= int64_t{4} * 2 * kTile * multiprocessors);
  const unsigned blocks = share_blocks(g, n_products, two && !g.gated ? 2 * kTile : kTile);
  const Kernel kernel = w == DType::kQ4   ? quant_kernel<true>(g.tokens)
                        : w == DType::kQ8 ? quant_kernel<false>(g.tokens)
                        : two && many     ? gemv_tiles_kernel<Bf16Mma<2, 2>>
                        : two             ? gemv_tiles_kernel<Bf16Mma<2, 1>>
                        : many            ? gemv_tiles_kernel<Bf16Mma<1, 2>>
                                          : gemv_tiles_kernel<Bf16Mma<1, 1>>;
  launch(kernel, dim3(blocks), dim3(kWarps * kWarpSize), 0, queue, g);
}

}  // namespace lariat::cuda
