#pragma once
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.cuh"

// Steps of attention on tensor cores (FlashAttention-2, arXiv 2307.08691). A block holds a tile of packed
// query rows and iterates over tiles of keys, double-buffered by asynchronous copies.
//
//   kRowWarps warps hold 16 kRowTiles rows each;  kKeyWarps warps share the keys of a tile
//   prefill: 4 x 1, 128 rows or 64        decode: 1 x 4, 16 rows; the warps' results are merged at the end
//
// kFine: q and the weights enter the tensor cores as two 16-bit terms, high + low, without loss; free in
// decode, which is memory-bound. Prefill rounds each once. kDim is head_dim rounded up to 64, 96, 128 or 256,
// padded with zeros.
namespace lariat::cuda {

template <class K, class V, int kDim, int kRowTilesPerWarp, int kRowWarps, int kKeyWarps, bool kFineTerms>
struct AttentionTile {
  using Key = K;
  using Value = V;
  static constexpr int kD = kDim;
  static constexpr int kRowTiles = kRowTilesPerWarp, kRowGroups = kRowWarps, kKeyGroups = kKeyWarps;
  static constexpr bool kFine = kFineTerms;
  static constexpr int kTerms = kFine ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarpRows * kRowWarps;
  static constexpr int kKeys = kDim > 128 ? 32 : 64;
  static constexpr int kWarpKeys = kKeys / kKeyWarps;
  static constexpr int kThreads = kWarpSize * kRowWarps * kKeyWarps;
  static constexpr bool kQueryInRegisters = kRowTiles * kDim <= 128;
  static constexpr int kStages = 2;
  static constexpr int kQueryElements = kRows * kDim;  // per term
  static constexpr size_t kQueryBytes = size_t{2} * kTerms * kQueryElements;
  static constexpr size_t kTileBytes = size_t{2} * kKeys * kDim;
  static constexpr size_t kSharedBytes = kQueryBytes + 2 * kStages * kTileBytes;
  // Offset of the tile that starts at key `first`: keys, then values.
  __device__ static size_t stage(int first) {
    return static_cast<unsigned>(first) / kKeys % kStages * 2 * kTileBytes;
  }
  // Rows are dense, with swizzled 16-byte chunks: chunk c of row r is at c ^ swizzle(r), so that ldmatrix's
  // eight rows cover all banks. Rows 16 apart have the same swizzle.
  static constexpr int kSwizzled = kDim % 64 == 0 ? 8 : 4;
  __device__ static unsigned swizzle(unsigned row) { return kSwizzled == 8 ? row % 8 : row / 2 % 4; }
  // Offset of a lane in ldmatrix for rows 0 to 15 and chunks `chunk` and `chunk` + 1. Matrices 1 and 2 are
  // rows 8-15 of the first chunk and rows 0-7 of the second; keys use the reverse order.
  __device__ static int lane_base(int lane, bool keys) {
    const int row = keys ? lane / 16 * 8 + lane % 8 : lane % 16;
    return row * kDim + ((keys ? lane / 8 % 2 : lane / 16) ^ swizzle(row)) * 8;
  }
  __device__ static int lane_offset(int base, int chunk) {
    return (base ^ chunk % kSwizzled * 8) + chunk / kSwizzled * kSwizzled * 8;
  }
  // Threads per copied row, and rows that the block copies at once.
  static constexpr int kCopyLanes = kSwizzled, kCopyRows = kThreads / kCopyLanes;
  static_assert(kWarpKeys % 16 == 0 && kKvPage % kKeys == 0 && kKeys % kCopyRows == 0 && kCopyRows % 8 == 0);
  static_assert(kSharedBytes <= (99 << 10));  // limit per block on the smallest sm_8x
};

template <class Tile>
using Scores = float[Tile::kRowTiles][Tile::kWarpKeys / 8][4];

// Lane 4 g + t has rows 16 i + g and 16 i + g + 8 of row tile i.
template <class Tile>
struct RowState {
  float out[Tile::kRowTiles][Tile::kD / 8][4];
  float base[Tile::kRowTiles][2];  // reference of the weights: near the running maximum
  float sum[Tile::kRowTiles][2];   // of this lane's columns only

  __device__ RowState() {
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      for (int r = 0; r < 2; ++r) {
        base[i][r] = -INFINITY;
        sum[i][r] = 0.0F;
      }
#pragma unroll
      for (int n = 0; n < Tile::kD / 8; ++n) {
        for (int j = 0; j < 4; ++j) out[i][n][j] = 0.0F;
      }
    }
  }
};

// Stores one element of q: the high term and, with kFine, the remainder.
template <class Tile>
__device__ __forceinline__ void store_query(typename Tile::Key* query, int row, int d, float value) {
  using K = typename Tile::Key;
  const auto column = static_cast<unsigned>(d) ^ Tile::swizzle(static_cast<unsigned>(row)) * 8;
  K* to = query + row * Tile::kD + column;
  const K high = from_float<K>(value);
  to[0] = high;
  if constexpr (Tile::kFine) to[Tile::kQueryElements] = from_float<K>(value - to_float(high));
}

// Loads rows of q, rotated and scaled; zeros after the last row. A warp takes whole rows, kBatch at a time,
// so that many loads are in flight. Unrotated dimensions are pairs with angle 0.
template <class Tile>
__device__ __forceinline__ void load_query(const Attention& a, const PackedRows& rows,
                                           typename Tile::Key* query) {
  constexpr int kWarps = Tile::kThreads / kWarpSize, kPairs = (Tile::kD / 2 + kWarpSize - 1) / kWarpSize;
  constexpr int kBatch = kPairs > 2 ? 2 : 4;
  static_assert(Tile::kRows % (kBatch * kWarps) == 0);
  const AttentionRange& range = Share(a).range;
  const int rotated = a.rotary_dim / 2, pairs = a.head_dim / 2;
  for (int first = warp_index(); first < Tile::kRows; first += kBatch * kWarps) {
    float2 x[kBatch][kPairs], turn[kBatch][kPairs];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int row = first + b * kWarps;
      const bool real = rows.has(row);
      const int64_t token_row = real ? rows.token_row(row) : rows.first_token_row;
      const float* q = a.q + token_row * a.q_stride + int64_t{rows.head(row)} * a.head_dim;
      const float q_scale = range.q_scale[token_row * range.q_scale_stride];
      const float whole = a.scale * range.whole(token_row);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int pair = lane_index() + j * kWarpSize;
        x[b][j] = turn[b][j] = {0.0F, 0.0F};
        if (!real || pair >= pairs) continue;
        const int2 d = pair < rotated ? pair_dims(a, pair) : int2{2 * pair, 2 * pair + 1};
        x[b][j] = {q[d.x], q[d.y]};
        turn[b][j] = {whole, 0.0F};
        if (pair >= rotated) continue;
        const float scale = whole * q_scale;
        turn[b][j] = {range.cos[token_row * range.cos_stride + pair] * scale,
                      range.sin[token_row * range.sin_stride + pair] * scale};
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int pair = lane_index() + j * kWarpSize;
        if (pair >= Tile::kD / 2) continue;
        const int2 d = pair < rotated ? pair_dims(a, pair) : int2{2 * pair, 2 * pair + 1};
        const float2 v = x[b][j], c = turn[b][j];
        const float2 w = pair < pairs ? float2{a.weight(d.x), a.weight(d.y)} : float2{1.0F, 1.0F};
        store_query<Tile>(query, first + b * kWarps, d.x, (v.x * c.x - v.y * c.y) * w.x);
        store_query<Tile>(query, first + b * kWarps, d.y, (v.x * c.y + v.y * c.x) * w.y);
      }
    }
  }
}

// Starts copying kKeys keys (or values) of a head. Zeros from key number `valid` on, where the cache is
// undefined, and from head_dim on. from: the first key, in one page.
template <class Tile, class T>
__device__ __forceinline__ void load_tile(const T* from, int head_dim, int valid, T* tile) {
  constexpr int kRounds = Tile::kKeys / Tile::kCopyRows, kChunks = Tile::kD / 8 / Tile::kCopyLanes;
  const unsigned row = threadIdx.x / Tile::kCopyLanes, chunk = threadIdx.x % Tile::kCopyLanes;
  T* to = tile + row * Tile::kD + (chunk ^ Tile::swizzle(row)) * 8;
  if (head_dim == Tile::kD && valid >= Tile::kKeys) {  // all offsets are compile-time constants
    from += row * Tile::kD + chunk * 8;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int offset = i * Tile::kCopyRows * Tile::kD + c * Tile::kCopyLanes * 8;
        cp_async16(to + offset, from + offset, true);
      }
    }
    return;
  }
  for (int i = 0; i < kRounds; ++i) {
    for (int c = 0; c < kChunks; ++c) {
      const int key = static_cast<int>(row) + i * Tile::kCopyRows;
      const int d = (static_cast<int>(chunk) + c * Tile::kCopyLanes) * 8;
      const bool inside = key < valid && d < head_dim;
      cp_async16(to + i * Tile::kCopyRows * Tile::kD + c * Tile::kCopyLanes * 8,
                 from + (inside ? key * head_dim + d : 0), inside);
    }
  }
}

// A warp's rows of q; empty if the rows are too many.
template <class Tile>
struct QueryFragments {
  static constexpr int kSteps = Tile::kQueryInRegisters ? Tile::kD / 16 : 0;
  uint32_t words[Tile::kTerms][Tile::kRowTiles][kSteps == 0 ? 1 : kSteps][4];
};

// query: one term, from the warp's first row on.
template <class Tile>
__device__ __forceinline__ void load_query_fragment(const typename Tile::Key* query, unsigned base,
                                                    int row_tile, int step, uint32_t (&a)[4]) {
  ldmatrix_x4(a, query + row_tile * 16 * Tile::kD + Tile::lane_offset(base, 2 * step));
}

template <class Tile>
__device__ __forceinline__ void load_fragments(const typename Tile::Key* query,
                                               QueryFragments<Tile>& fragments) {
  const unsigned base = Tile::lane_base(threadIdx.x % kWarpSize, false);
#pragma unroll
  for (int term = 0; term < Tile::kTerms; ++term) {
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int step = 0; step < QueryFragments<Tile>::kSteps; ++step) {
        load_query_fragment<Tile>(query + term * Tile::kQueryElements, base, i, step,
                                  fragments.words[term][i][step]);
      }
    }
  }
}

// scores = q k^T for kWarpKeys keys from `keys` on.
template <class Tile>
__device__ __forceinline__ void score_keys(const QueryFragments<Tile>& fragments,
                                           const typename Tile::Key* query, const typename Tile::Key* keys,
                                           unsigned lane, Scores<Tile>& scores) {
  const unsigned base = Tile::lane_base(lane, false), key_base = Tile::lane_base(lane, true);
  // Full unrolling would exceed the registers.
#pragma unroll(Tile::kQueryInRegisters || Tile::kD % 64 != 0 ? Tile::kD / 16 : 4)
  for (int step = 0; step < Tile::kD / 16; ++step) {
    uint32_t a[Tile::kTerms][Tile::kRowTiles][4];
#pragma unroll
    for (int term = 0; term < Tile::kTerms; ++term) {
#pragma unroll
      for (int i = 0; i < Tile::kRowTiles; ++i) {
        if constexpr (Tile::kQueryInRegisters) {
#pragma unroll
          for (int j = 0; j < 4; ++j) a[term][i][j] = fragments.words[term][i][step][j];
        } else {
          load_query_fragment<Tile>(query + term * Tile::kQueryElements, base, i, step, a[term][i]);
        }
      }
    }
#pragma unroll
    for (int pair = 0; pair < Tile::kWarpKeys / 16; ++pair) {
      uint32_t b[4];
      ldmatrix_x4(b, keys + pair * 16 * Tile::kD + Tile::lane_offset(key_base, 2 * step));
#pragma unroll
      for (int term = 0; term < Tile::kTerms; ++term) {
#pragma unroll
        for (int i = 0; i < Tile::kRowTiles; ++i) {
          mma_16x8x16<typename Tile::Key>(scores[i][2 * pair], a[term][i], b[0], b[1]);
          mma_16x8x16<typename Tile::Key>(scores[i][2 * pair + 1], a[term][i], b[2], b[3]);
        }
      }
    }
  }
}

template <class Tile>
__device__ __forceinline__ void cap_scores(const Attention& a, Scores<Tile>& scores) {
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[i][n][j] = capped_score(a, scores[i][n][j]);
    }
  }
}

// ALiBi: adds slope * (key - position). first_row, first_key: of the warp, in the tile. Row data kept across
// tiles would take registers.
template <class Tile>
__device__ __forceinline__ void add_distances(const Attention& a, const PackedRows& rows, int first_row,
                                              int first_key, Scores<Tile>& scores) {
  const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 16 * i + g + 8 * r;
      const float slope = a.slopes[rows.head(row)] * kLog2E;
      const auto distance = static_cast<float>(first_key + 2 * t - rows.position(row));
#pragma unroll
      for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
        scores[i][n][2 * r] += slope * (distance + static_cast<float>(n * 8));
        scores[i][n][2 * r + 1] += slope * (distance + static_cast<float>(n * 8 + 1));
      }
    }
  }
}

// Masks keys that a row does not see; arguments as in add_distances.
template <class Tile>
__device__ __forceinline__ void apply_mask(const AttentionRange& range, const PackedRows& rows, int first_row,
                                           int first_key, Scores<Tile>& scores) {
  const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int position = rows.position(first_row + 16 * i + g + 8 * r), lane_key = first_key + 2 * t;
      const int end = range.end.at(position) - lane_key, first = range.begin.at(position) - lane_key;
#pragma unroll
      for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (n * 8 + j >= end || n * 8 + j < first) scores[i][n][2 * r + j] = -INFINITY;
        }
      }
    }
  }
}

// Converts scores to weights exp2(score - base), at most 2^kSlack. A row's base follows its maximum only
// above base + kSlack: the sums are rarely rescaled.
template <class Tile>
__device__ __forceinline__ void online_softmax_update(Scores<Tile>& scores, RowState<Tile>& state) {
  constexpr float kSlack = 8.0F;
  float top[Tile::kRowTiles][2];
  bool above = false;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float x = fmaxf(scores[i][0][2 * r], scores[i][0][2 * r + 1]);
#pragma unroll
      for (int n = 1; n < Tile::kWarpKeys / 8; ++n) {
        x = fmaxf(x, fmaxf(scores[i][n][2 * r], scores[i][n][2 * r + 1]));
      }
      x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, 1));
      x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, 2));
      top[i][r] = x > state.base[i][r] + kSlack ? x : state.base[i][r];
      above = above || top[i][r] != state.base[i][r];
    }
  }
  if (__any_sync(kFullWarp, above ? 1 : 0) != 0) {
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // A row without a visible key so far keeps zeros.
        const float shrink = top[i][r] == -INFINITY ? 1.0F : exp2_quick(state.base[i][r] - top[i][r]);
        state.base[i][r] = top[i][r];
        state.sum[i][r] *= shrink;
#pragma unroll
        for (int n = 0; n < Tile::kD / 8; ++n) {
          state.out[i][n][2 * r] *= shrink;
          state.out[i][n][2 * r + 1] *= shrink;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = state.base[i][r] == -INFINITY ? 0.0F : state.base[i][r];
#pragma unroll
      for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
#pragma unroll
        for (int j = 2 * r; j < 2 * r + 2; ++j) {
          scores[i][n][j] = exp2_quick(scores[i][n][j] - base);
          state.sum[i][r] += scores[i][n][j];
        }
      }
    }
  }
}

// Packs two adjacent weights as an mma operand, and their remainders.
template <class T, int kTerms>
__device__ __forceinline__ void split_pair(float x, float y, uint32_t (&terms)[kTerms]) {
  terms[0] = pack2_quick<T>(x, y);
  if constexpr (kTerms == 2) {
    float high[2];
    unpack_word<T>(terms[0], high);
    terms[1] = pack2_quick<T>(x - high[0], y - high[1]);
  }
}

// state.out += weights v. Two adjacent mma results are one mma operand.
template <class Tile>
__device__ __forceinline__ void add_values(const Scores<Tile>& weights, const typename Tile::Value* values,
                                           unsigned lane, RowState<Tile>& state) {
  using V = typename Tile::Value;
  const unsigned base = Tile::lane_base(lane, false);
#pragma unroll
  for (int pair = 0; pair < Tile::kWarpKeys / 16; ++pair) {
    uint32_t a[Tile::kTerms][Tile::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&half)[4] = weights[i][2 * pair + j / 2];
        uint32_t terms[Tile::kTerms];
        split_pair<V>(half[j % 2 * 2], half[j % 2 * 2 + 1], terms);
#pragma unroll
        for (int term = 0; term < Tile::kTerms; ++term) a[term][i][j] = terms[term];
      }
    }
#pragma unroll
    for (int step = 0; step < Tile::kD / 16; ++step) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, values + pair * 16 * Tile::kD + Tile::lane_offset(base, 2 * step));
#pragma unroll
      for (int term = 0; term < Tile::kTerms; ++term) {
#pragma unroll
        for (int i = 0; i < Tile::kRowTiles; ++i) {
          mma_16x8x16<V>(state.out[i][2 * step], a[term][i], b[0], b[1]);
          mma_16x8x16<V>(state.out[i][2 * step + 1], a[term][i], b[2], b[3]);
        }
      }
    }
  }
}

}  // namespace lariat::cuda
