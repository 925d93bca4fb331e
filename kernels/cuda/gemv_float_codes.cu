#include <algorithm>

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/gemv_tiles.cuh"

// Products of few tokens with quantized weights of float codes, in f32.
namespace lariat::cuda {
namespace {

constexpr int kMostTokens = 4;  // per launch, as registers allow

// Scales, or minima, of four outputs: f32, four 16-bit values, or these and four bytes.
__device__ __forceinline__ uint4 load_scales(ScaleType type, const unsigned char* inner,
                                             const unsigned char* outer) {
  if (type == ScaleType::kF32) return load16(inner);
  const bool nested = type == ScaleType::kNested;
  const uint2 halves = *reinterpret_cast<const uint2*>(nested ? outer : inner);
  return {halves.x, halves.y, nested ? *reinterpret_cast<const uint32_t*>(inner) : 0U, 0U};
}

__device__ __forceinline__ void unpack_scales(ScaleType type, uint4 stored, float (&out)[4]) {
  const uint32_t words[] = {stored.x, stored.y, stored.z, stored.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t bits = type == ScaleType::kF32 ? words[j] : words[j / 2] >> (16 * (j % 2));
    out[j] = scale_of(type, bits, stored.z >> (8 * j));
  }
}

// A lane sums four outputs of a tile. Per chunk it has two parts of four inputs, each with one scale: 8 bits:
// one part of each group; 4 bits: both parts of one group, whose codes share bytes.
template <bool kFourBits, int kTokenCount>
struct FloatDots {
  static constexpr int kTiles = 1, kTokens = kTokenCount, kBlocks = 2;
  static constexpr int kOutputs = 4;
  static constexpr int kAhead = kTokens == 1 ? 3 : 2;  // chunks in flight

  float sum[kTokens][kOutputs];

  // First input of this lane's part, in the chunk.
  static __device__ __forceinline__ int first_input(int part) {
    const int lane = lane_index();
    return kFourBits ? lane / 16 * kCodeGroup + part * 16 + lane % 16 / 4 * 4
                     : part * kCodeGroup + lane / 4 * 4;
  }

  struct Loaded {
    uint4 weights[kFourBits ? 1 : 2], scales[2], minima[2];

    __device__ __forceinline__ void load(const Codes& c, const unsigned char* tile, int chunk) {
      const int number = block_of_chunk(c, chunk), output = lane_index() % 4 * kOutputs;
      const int first = (chunk - number * c.chunks) * kChunk;
      const unsigned char* block = tile + int64_t{number} * c.block_bytes;
      const unsigned char* codes = block + c.scale_bytes + first / kCodeGroup * c.group_bytes;
#pragma unroll
      for (int i = 0; i < (kFourBits ? 1 : 2); ++i) {
        weights[i] = load16_streaming(codes + i * c.group_bytes + lane_index() * 16);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int group = (first + first_input(i)) >> c.size_bits;
        const unsigned char* inner = block + c.outer_bytes + (group * kCodeRows + output) * c.scale_width;
        const unsigned char* outer = block + output * 2;
        scales[i] = load_scales(c.scales, inner, outer);
        minima[i] = {0, 0, 0, 0};
        if (c.minimum) minima[i] = load_scales(c.scales, inner + c.inner_bytes, outer + 2 * kCodeRows);
      }
    }
    // Four codes of a part, in bytes, per output.
    __device__ __forceinline__ void codes(int part, uint32_t (&out)[kOutputs]) const {
      const uint4 w = weights[kFourBits ? 0 : part];
      const uint32_t words[kOutputs] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        out[j] = kFourBits ? words[j] >> (4 * part) & 0x0f0f0f0fU : words[j];
      }
    }
  };

  // Adds the products of the inputs from `first` on to sum. entry: this lane's entry of the table of 4-bit
  // codes.
  template <class G>
  __device__ __forceinline__ void add(const G& g, const uint32_t (&codes)[kOutputs], int first,
                                      const float (&scale)[kOutputs], const float (&minimum)[kOutputs],
                                      float entry) {
    float values[kOutputs][4];
#pragma unroll
    for (int i = 0; i < kOutputs * 4; ++i) {
      const uint32_t q = codes[i / 4] >> (i % 4 * 8) & 0xffU;
      values[i / 4][i % 4] = kFourBits ? __shfl_sync(kFullWarp, entry, static_cast<int>(q)) : e4m3(q);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float x[4];
      load_x<4>(static_cast<const float*>(g.x) + token_or_last(g, t) * g.blocks * kChunk + first, x);
      const float x_sum = (x[0] + x[1]) + (x[2] + x[3]);
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        const float* v = values[j];
        const float s = v[0] * x[0] + v[1] * x[1] + v[2] * x[2] + v[3] * x[3];
        sum[t][j] += s * scale[j] + minimum[j] * x_sum;
      }
    }
  }

  static __device__ __forceinline__ void prefetch(const Gemv& g, const GemvProduct& p, int first_row) {
    prefetch_code_tile(g, p, first_row);
  }
  template <class G>
  __device__ __forceinline__ void multiply_chunk(const G& g, const Loaded& loaded, int chunk, float entry) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float scale[kOutputs], minimum[kOutputs];
      unpack_scales(g.codes.scales, loaded.scales[part], scale);
      unpack_scales(g.codes.scales, loaded.minima[part], minimum);
      uint32_t codes[kOutputs];
      loaded.codes(part, codes);
      add(g, codes, chunk * kChunk + first_input(part), scale, minimum, entry);
    }
  }
  template <class G>
  __device__ __forceinline__ void multiply(const G& g, const GemvProduct& p, int first_row) {
    const unsigned char* tile = code_tile(g, p, first_row);
    const float entry = g.codes.table[lane_index() % 16];
    int chunk = warp_index();
    for (; chunk + (kAhead - 1) * kWarps < g.blocks; chunk += kAhead * kWarps) {
      Loaded loaded[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) loaded[i].load(g.codes, tile, chunk + i * kWarps);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) multiply_chunk(g, loaded[i], chunk + i * kWarps, entry);
    }
    for (; chunk < g.blocks; chunk += kWarps) {
      Loaded loaded;
      loaded.load(g.codes, tile, chunk);
      multiply_chunk(g, loaded, chunk, entry);
    }
  }

  __device__ __forceinline__ void store(float* sums) const { store_dots(sum, sums); }
};

template <bool kFourBits>
Kernels kernels_for(int tokens) {
  return tokens == 1 ? kernels_of<FloatDots<kFourBits, 1>>()
                     : kernels_of<FloatDots<kFourBits, kMostTokens>>();
}

Kernels kernels_for(const Gemv& g) {
  return g.codes.width == CodeWidth::kBytes ? kernels_for<false>(g.tokens) : kernels_for<true>(g.tokens);
}

}  // namespace

void gemv_float_codes(Gemv& g, int n_products, LaunchQueue& queue) {
  const unsigned blocks = share_blocks(g, n_products, kTile);
  const int all = g.tokens;
  for (int first = 0; first < all; first += kMostTokens) {
    g.tokens = std::min(kMostTokens, all - first);
    launch(kernels_for(g).plain, dim3(blocks), dim3(kWarps * kWarpSize), 0, queue, g);
    g.x = static_cast<const float*>(g.x) + kMostTokens * g.blocks * kChunk;
    for (int i = 0; i < n_products; ++i) {
      GemvProduct& p = g.product[i];
      p.out = static_cast<float*>(p.out) + kMostTokens * p.out_stride;
    }
  }
}

void grouped_float_codes(const Gemv& g, const Grouped& p, const Experts& experts, LaunchQueue& queue) {
  launch_grouped(kernels_for(g), g, p, experts, queue);
}

}  // namespace lariat::cuda
