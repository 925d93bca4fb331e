#include <type_traits>

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/gemv_tiles.cuh"
#include "kernels/cuda/ptx.cuh"

// Products of few tokens with quantized weights of integer codes: sums over inputs with one scale are exact
// (kernels/quant.h). Up to 4 tokens use byte dot products, more use tensor cores.
namespace lariat::cuda {
namespace {

static_assert(kCodeWarps == kWarps);

// Converts words of four codes to signed bytes: minus 128; 4-bit codes verbatim or by a table.
template <bool kFourBits, int kWords>
__device__ __forceinline__ void to_signed_bytes(const Codes& c, uint32_t (&codes)[kWords]) {
#pragma unroll
  for (uint32_t& word : codes) word = kFourBits ? word & 0x0f0f0f0fU : word ^ 0x80808080U;
  if constexpr (kFourBits) {
    if (c.code == Code::kLinear) return;
#pragma unroll
    for (uint32_t& word : codes) {
      const uint32_t pairs = word | word >> 4, nibbles = (pairs & 0xffU) | (pairs >> 8 & 0xff00U);
      const uint32_t low = choose_bytes(c.integers[0], c.integers[1], nibbles),
                     high = choose_bytes(c.integers[2], c.integers[3], nibbles);
      word = choose_bytes(low, high, 0x3210U | (nibbles & 0x8888U) >> 1);
    }
  }
}
// Difference between values and these bytes.
template <bool kFourBits>
__device__ __forceinline__ int offset_of(const Codes& c) {
  return (kFourBits ? 0 : 128) - c.zero;
}

template <int kWords>
__device__ __forceinline__ void load_words(const unsigned char* from, uint32_t (&words)[kWords]) {
  if constexpr (kWords == 4) {
    const uint4 v = load16(from);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if constexpr (kWords == 2) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    words[0] = v.x, words[1] = v.y;
  } else {
    words[0] = *reinterpret_cast<const uint32_t*>(from);
  }
}

// Stored scales, or minima, of 2 or 4 adjacent outputs; nested scales for both halves of a group.
template <ScaleType kType, int kOutputs>
struct StoredScales {
  static constexpr bool kPairs = kType == ScaleType::kPairs, kNested = kPairs || kType == ScaleType::kNested,
                        kF32 = kType == ScaleType::kF32;
  static constexpr int kWidth = kF32 ? 4 : kNested ? 1 : 2, kWords = kOutputs * (kF32 ? 4 : 2) / 4;
  using Inner = std::conditional_t<kOutputs == 4, uint32_t, uint16_t>;
  uint32_t words[kWords], inner[2];

  // Loads outputs from `output` on, for inputs from `first` of the chunk on.
  __device__ __forceinline__ void load(const Codes& c, const Chunk& chunk, int first, int output,
                                       bool minima) {
    const int group = (chunk.number * kChunk + first) >> c.size_bits;
    const unsigned char* at =
        chunk.block + c.outer_bytes + (minima ? c.inner_bytes : 0) + (group * kCodeRows + output) * kWidth;
    if constexpr (kNested) {
      load_words(chunk.block + (minima ? 2 * kCodeRows : 0) + output * 2, words);
      inner[0] = inner[1] = *reinterpret_cast<const Inner*>(at);
      if (c.size_bits < 5) inner[1] = *reinterpret_cast<const Inner*>(at + kCodeRows);
      if (kPairs && minima) inner[0] >>= 4, inner[1] >>= 4;
    } else {
      load_words(at, words);
    }
  }
  __device__ __forceinline__ void unpack(int half, float (&out)[kOutputs]) const {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const uint32_t bits = kF32 ? words[j] : words[j / 2] >> (16 * (j % 2));
      out[j] = scale_of(kType, bits, kNested ? inner[half] >> (8 * j) : 0);
    }
  }
};

// Shared by both kernels: kLoads loads of a chunk's codes per lane, and a warp's loop over its chunks, with
// Work::kAhead chunks loaded before the first use.
template <class Work, ScaleType kScales, int kOutputs>
struct CodeTile {
  static constexpr int kTiles = 1;
  using Stored = StoredScales<kScales, kOutputs>;
  struct Pair {
    Stored scales, minima;

    __device__ __forceinline__ void load(const Codes& c, const Chunk& chunk, int first, int output) {
      scales.load(c, chunk, first, output, false);
      if (c.minimum) minima.load(c, chunk, first, output, true);
    }
  };
  const unsigned char* tile;

  static __device__ __forceinline__ void prefetch(const Gemv& g, const GemvProduct& p, int first_row) {
    prefetch_code_tile(g, p, first_row);
  }
  template <class G>
  __device__ __forceinline__ void multiply(const G& g, const GemvProduct& p, int first_row) {
    auto& work = static_cast<Work&>(*this);
    const Codes& c = g.codes;
    tile = code_tile(g, p, first_row);
    int chunk = warp_index();
    Chunk at(c, tile, chunk);
    for (; chunk + (Work::kAhead - 1) * kWarps < g.blocks; chunk += Work::kAhead * kWarps) {
      typename Work::Loaded loaded[Work::kAhead];
#pragma unroll
      for (int i = 0; i < Work::kAhead; ++i, at.advance(c)) loaded[i].load(c, at);
#pragma unroll
      for (int i = 0; i < Work::kAhead; ++i) work.multiply_chunk(g, loaded[i], chunk + i * kWarps);
    }
    for (; chunk < g.blocks; chunk += kWarps, at.advance(c)) {
      typename Work::Loaded loaded;
      loaded.load(c, at);
      work.multiply_chunk(g, loaded, chunk);
    }
  }
  // Scales of the upper half of a group, which differ for groups of 16.
  __device__ __forceinline__ Pair upper_half(const Codes& c, int chunk, int first, int output,
                                             const Pair& loaded) const {
    if constexpr (Stored::kNested) return loaded;  // its inner[1]
    Pair pair;
    pair.load(c, Chunk(c, tile, chunk), first + kCodeGroup / 2, output);
    return pair;
  }
};

// --- one token: dot products of bytes --------------------------------------------------------------------
// A lane sums four outputs of a tile. Per chunk it has, with 8 bits, four inputs of each group; with fewer,
// four inputs of each half of one group, whose codes share bytes, in planes from two lines.
template <CodeWidth kWidth, ScaleType kScales>
struct CodeDots : CodeTile<CodeDots<kWidth, kScales>, kScales, 4> {
  static constexpr bool kBytes = kWidth == CodeWidth::kBytes, kFourBits = kWidth == CodeWidth::kNibbles,
                        kSmall = kScales == ScaleType::kBF16 || kScales == ScaleType::kF16;
  static constexpr int kTokens = 1, kOutputs = 4, kLoads = kFourBits ? 1 : 2, kParts = kBytes ? 1 : 2;
  static constexpr int kShares = kBytes ? 2 : 1;  // of a chunk, each with a scale
  static constexpr int kBlocks = kSmall ? 3 : 2, kAhead = kFourBits ? 4 : kSmall ? 2 : 3;
  using Pair = typename CodeTile<CodeDots, kScales, 4>::Pair;

  float sum[kTokens][kOutputs];

  static __device__ __forceinline__ int output() { return lane_index() % 4 * kOutputs; }
  static __device__ __forceinline__ int quad() { return kBytes ? lane_index() / 4 : lane_index() % 16 / 4; }
  static __device__ __forceinline__ int group(int share) { return kBytes ? share : lane_index() / 16; }
  static __device__ __forceinline__ int first_input(int share) {
    return group(share) * kCodeGroup + (kBytes ? quad() * 4 : 0);
  }

  struct Loaded {
    uint4 weights[kLoads];
    Pair scales[kShares];

    __device__ __forceinline__ void load(const Codes& c, const Chunk& at) {
      const unsigned char* codes = at.codes<kWidth>(c);
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const int bytes = kWidth == CodeWidth::kPlanes
                              ? group(0) * c.group_bytes + c.planes[l].line(quad()) + output() * 4
                              : l * 512 + lane_index() * 16;
        weights[l] = load16_streaming(codes + bytes);
      }
#pragma unroll
      for (int s = 0; s < kShares; ++s) scales[s].load(c, at, first_input(s), output());
    }
    // Four codes of each output, for the quad of each part.
    __device__ __forceinline__ void codes(const Codes& c, int share,
                                          uint32_t (&out)[kParts * kOutputs]) const {
      const uint4 w = weights[kBytes ? share : 0], high = weights[kLoads - 1];
      const uint32_t lows[] = {w.x, w.y, w.z, w.w}, highs[] = {high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < kParts * kOutputs; ++i) {
        const int j = i % kOutputs, at = quad() + i / kOutputs * 4;
        out[i] = kWidth == CodeWidth::kPlanes
                     ? c.planes[0].values(lows[j], at) | c.planes[1].values(highs[j], at)
                     : lows[j] >> (i / kOutputs * 4);
      }
      to_signed_bytes<kFourBits>(c, out);
    }
  };

  // Adds the products of kCount parts from kFirst on, which share a scale, to sum.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void add(const Codes& c, const Pair& pair,
                                      const uint32_t (&codes)[kParts * kOutputs], const uint32_t (&x)[kParts],
                                      float x_scale) {
    float scale[kOutputs], minimum[kOutputs];
    pair.scales.unpack(kFirst, scale);
    int total = 0;
#pragma unroll
    for (int i = kFirst; i < kFirst + kCount; ++i) total = dot4(0x01010101U, x[i], total);
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      int s = offset_of<kFourBits>(c) * total;
#pragma unroll
      for (int i = kFirst; i < kFirst + kCount; ++i) s = dot4(codes[i * kOutputs + j], x[i], s);
      sum[0][j] += static_cast<float>(s) * (scale[j] * x_scale);
    }
    if (!c.minimum) return;
    pair.minima.unpack(kFirst, minimum);
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) sum[0][j] += minimum[j] * (x_scale * static_cast<float>(total));
  }

  template <class G>
  __device__ __forceinline__ void multiply_chunk(const G& g, const Loaded& loaded, int chunk) {
    const Codes& c = g.codes;
#pragma unroll
    for (int s = 0; s < kShares; ++s) {
      uint32_t codes[kParts * kOutputs], x[kParts];
      loaded.codes(c, s, codes);
      const auto at = (only_token(g) * g.blocks + chunk) * 2 + group(s);
      const auto* from = reinterpret_cast<const uint32_t*>(g.groups + at * kCodeGroup) + quad();
#pragma unroll
      for (int i = 0; i < kParts; ++i) x[i] = from[4 * i];
      const float x_scale = g.group_scales[at];
      const Pair& pair = loaded.scales[s];
      if (!kBytes && c.size_bits < 5) {
        const Pair upper = this->upper_half(c, chunk, first_input(s), output(), pair);
        add<0, 1>(c, pair, codes, x, x_scale);
        add<kParts - 1, 1>(c, upper, codes, x, x_scale);
      } else {
        add<0, kParts>(c, pair, codes, x, x_scale);
      }
    }
  }

  __device__ __forceinline__ void store(float* sums) const { store_dots(sum, sums); }
};

// --- more tokens: tensor cores --------------------------------------------------------------------------
// As QuantMma (gemv_tiles.cu). Halves of a group with their own scales take an mma each, with zeros in the
// other half. An mma with ones gives the sums of x, for offsets and minima.
template <CodeWidth kWidth, ScaleType kScales, int kGroups>
struct CodeMma : CodeTile<CodeMma<kWidth, kScales, kGroups>, kScales, 2> {
  static constexpr bool kFourBits = kWidth == CodeWidth::kNibbles, kPlanes = kWidth == CodeWidth::kPlanes;
  static constexpr int kTokens = kGroups * 8, kBlocks = 2;
  static constexpr int kAhead = kFourBits && kScales != ScaleType::kF32 ? 4 : 2;
  // 4 bits: upper nibbles are inputs 16 to 31. Planes: a line of each.
  static constexpr int kLoadsPerGroup = kFourBits ? 1 : 2;
  using Pair = typename CodeTile<CodeMma, kScales, 2>::Pair;

  float sum[kGroups][4];

  static __device__ __forceinline__ int output() { return lane_index() / 4 * 2; }

  struct Loaded {
    uint2 weights[2][kLoadsPerGroup];
    Pair scales[2];

    __device__ __forceinline__ void load(const Codes& c, const Chunk& at) {
      constexpr int kQuadBytes = 4 * kCodeRows;
      const int t = lane_index() % 4;
      const unsigned char* codes = at.codes<kWidth>(c) + output() * 4;
#pragma unroll
      for (int group = 0; group < 2; ++group) {
#pragma unroll
        for (int l = 0; l < kLoadsPerGroup; ++l) {
          const int bytes = kPlanes ? group * c.group_bytes + c.planes[l].line(t)
                                    : ((group * kLoadsPerGroup + l) * 4 + t) * kQuadBytes;
          weights[group][l] = load8_streaming(codes + bytes);
        }
        scales[group].load(c, at, group * kCodeGroup, output());
      }
    }
    __device__ __forceinline__ void operand(const Codes& c, int group, uint32_t (&a)[4]) const {
      const uint2 low = weights[group][0], high = weights[group][kLoadsPerGroup - 1];
      a[0] = low.x;
      a[1] = low.y;
      a[2] = kFourBits ? low.x >> 4 : high.x;
      a[3] = kFourBits ? low.y >> 4 : high.y;
      if constexpr (kPlanes) {
        const int t = lane_index() % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int quad = t + i / 2 * 4;
          a[i] = c.planes[0].values(i % 2 == 0 ? low.x : low.y, quad) |
                 c.planes[1].values(i % 2 == 0 ? high.x : high.y, quad);
        }
      }
      to_signed_bytes<kFourBits>(c, a);
    }
  };

  // Adds the products of a group, or half a group, with eight tokens to `to`; x0 and x1: words of B.
  __device__ __forceinline__ void add(const Codes& c, const Pair& pair, int half, const uint32_t (&a)[4],
                                      uint32_t x0, uint32_t x1, const float (&x_scale)[2], float (&to)[4]) {
    const int offset = offset_of<kFourBits>(c);
    int d[4] = {}, total[4] = {};
    mma_16x8x32(d, a, x0, x1);
    if (c.minimum || offset != 0) {
      const uint32_t ones[4] = {0x01010101U, 0x01010101U, 0x01010101U, 0x01010101U};
      mma_16x8x32(total, ones, x0, x1);
    }
    float scale[2], minimum[2];
    pair.scales.unpack(half, scale);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to[j] += static_cast<float>(d[j] + offset * total[j]) * (scale[j / 2] * x_scale[j % 2]);
    }
    if (!c.minimum) return;
    pair.minima.unpack(half, minimum);
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] += minimum[j / 2] * (x_scale[j % 2] * static_cast<float>(total[j]));
  }

  template <class G>
  __device__ __forceinline__ void multiply_chunk(const G& g, const Loaded& loaded, int chunk) {
    const Codes& c = g.codes;
    const int lane_row = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      uint32_t a[4];
      loaded.operand(c, group, a);
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const auto group_of = [&](int token) {
          return (token_or_last(g, n * 8 + token) * g.blocks + chunk) * 2 + group;
        };
        const auto* x = reinterpret_cast<const uint32_t*>(g.groups + group_of(lane_row) * kCodeGroup + t * 4);
        const float x_scale[2] = {g.group_scales[group_of(2 * t)], g.group_scales[group_of(2 * t + 1)]};
        const Pair& pair = loaded.scales[group];
        if (c.size_bits < 5) {
          add(c, pair, 0, a, x[0], 0, x_scale, sum[n]);
          add(c, this->upper_half(c, chunk, group * kCodeGroup, output(), pair), 1, a, 0, x[4], x_scale,
              sum[n]);
        } else {
          add(c, pair, 0, a, x[0], x[4], x_scale, sum[n]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(float* sums) const {
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
      const int token = i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
      sums[token * kTile + output() + i % 4 / 2] = sum[i / 4][i % 4];
    }
  }
};

template <CodeWidth kWidth, ScaleType kScales>
Kernels kernels_for(int tokens) {
  return tokens == 1   ? kernels_of<CodeDots<kWidth, kScales>>()
         : tokens <= 8 ? kernels_of<CodeMma<kWidth, kScales, 1>>()
                       : kernels_of<CodeMma<kWidth, kScales, 2>>();
}

template <CodeWidth kWidth>
Kernels kernels_for(ScaleType scales, int tokens) {
  using enum ScaleType;
  if constexpr (kWidth == CodeWidth::kPlanes) {
    if (scales == kPairs) return kernels_for<kWidth, kPairs>(tokens);
  }
  return scales == kF32    ? kernels_for<kWidth, kF32>(tokens)
         : scales == kF16  ? kernels_for<kWidth, kF16>(tokens)
         : scales == kBF16 ? kernels_for<kWidth, kBF16>(tokens)
                           : kernels_for<kWidth, kNested>(tokens);
}

Kernels kernels_for(const Gemv& g) {
  using enum CodeWidth;
  return g.codes.width == kBytes     ? kernels_for<kBytes>(g.codes.scales, g.tokens)
         : g.codes.width == kNibbles ? kernels_for<kNibbles>(g.codes.scales, g.tokens)
                                     : kernels_for<kPlanes>(g.codes.scales, g.tokens);
}

}  // namespace

void gemv_codes(Gemv& g, int n_products, LaunchQueue& queue) {
  const unsigned blocks = share_blocks(g, n_products, kTile);
  launch(kernels_for(g).plain, dim3(blocks), dim3(kWarps * kWarpSize), 0, queue, g);
}

void grouped_codes(const Gemv& g, const Grouped& p, const Experts& experts, LaunchQueue& queue) {
  launch_grouped(kernels_for(g), g, p, experts, queue);
}

}  // namespace lariat::cuda
