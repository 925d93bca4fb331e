#pragma once
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.cuh"

// The steps of attention on tensor cores (FlashAttention-2, arXiv 2307.08691): a block holds a tile of packed
// query rows and walks over tiles of keys, double-buffered by asynchronous copies, with a running maximum per
// row.
//
//   kRowWarps warps hold 16 rows each;  kKeyWarps warps share the keys of a tile between them
//   prefill: 4 x 1, 64 rows               decode: 1 x 4, 16 rows; the warps' results are merged at the end
//
// kFine: q and the weights go through the tensor cores as two terms, high + low, so that nothing is lost to
// their 16 bits; free in decode, where memory is what costs. Prefill rounds each once, an error like that of
// the 16-bit keys and values themselves.
// kDim is head_dim rounded up to 64, 96, 128 or 256; the dimensions beyond head_dim are zeros.
namespace lariat::cuda {

template <class K, class V, int kDim, int kRowWarps, int kKeyWarps, bool kFineTerms>
struct AttentionTile {
  using Key = K;
  using Value = V;
  static constexpr int kD = kDim;
  static constexpr int kRowGroups = kRowWarps, kKeyGroups = kKeyWarps;
  static constexpr bool kFine = kFineTerms;
  static constexpr int kTerms = kFine ? 2 : 1;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kKeys = kDim > 128 ? 32 : 64;
  static constexpr int kWarpKeys = kKeys / kKeyWarps;
  static constexpr int kThreads = kWarpSize * kRowWarps * kKeyWarps;
  static constexpr int kPitch = kDim + 8;  // elements; 16 bytes more spread ldmatrix's rows over all banks
  static constexpr bool kQueryInRegisters = kDim <= 128;
  static constexpr int kStages = 2;
  static constexpr int kQueryElements = kRows * kPitch;  // of one term
  static constexpr size_t kQueryBytes = size_t{2} * kTerms * kQueryElements;
  static constexpr size_t kTileBytes = size_t{2} * kKeys * kPitch;
  // The key tiles can take the place of the query once that is in registers, the merge that of the tiles.
  static constexpr size_t kTileOffset = kQueryInRegisters && kKeyWarps == 1 ? 0 : kQueryBytes;
  static constexpr size_t kSharedBytes = kTileOffset + 2 * kStages * kTileBytes;
  static_assert(kWarpKeys % 16 == 0 && kKvPage % kKeys == 0);
  static_assert(kSharedBytes <= (99 << 10));  // what a block may have on the smallest of sm_8x
  static_assert(kTileOffset > 0 || kQueryBytes <= 2 * kStages * kTileBytes);
};

// A lane's share of its warp's 16 rows: rows g and g + 8, for lane = 4 g + t.
template <class Tile>
struct RowState {
  float out[Tile::kD / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0F, 0.0F};  // of this lane's columns only; the quad's lanes meet at the end
};

struct KeyRange {
  int64_t first, end;  // first is a multiple of the tile's keys
};

// The keys for this block: its share of what any of its rows sees.
template <class Tile>
__device__ __forceinline__ KeyRange key_range(const Attention& a, int64_t low_position, int64_t high_position,
                                              int split) {
  const int64_t first = a.first_key(low_position) / Tile::kKeys * Tile::kKeys;
  const int64_t end = high_position + 1;
  const int64_t tiles = ceil_div<int64_t>(end - first, Tile::kKeys);
  const int64_t share = ceil_div<int64_t>(tiles, a.splits) * Tile::kKeys;
  const int64_t mine = first + split * share;
  return {mine, mine + share < end ? mine + share : end};
}

// One element of q, in the keys' type: its high term and, kFine, what that leaves over.
template <class Tile>
__device__ __forceinline__ void store_query(typename Tile::Key* to, float value) {
  using K = typename Tile::Key;
  const K high = from_float<K>(value);
  to[0] = high;
  if constexpr (Tile::kFine) to[Tile::kQueryElements] = from_float<K>(value - to_float(high));
}

// A sequence's tokens as packed rows of one KV head.
struct PackedRows {
  int64_t first_token_row;  // of the sequence, in q and out
  int64_t first;            // packed row of the tile
  int64_t count;            // of packed rows in the sequence
  int group, kv_head;

  __device__ bool has(int row) const { return first + row < count; }
  __device__ int64_t token_row(int row) const { return first_token_row + (first + row) / group; }
  __device__ int head(int row) const { return kv_head * group + static_cast<int>((first + row) % group); }
};

// The tile's rows of q, rotated and scaled; zeros beyond the last row.
template <class Tile>
__device__ void load_query(const Attention& a, const PackedRows& rows, typename Tile::Key* query) {
  const int pairs = a.rotary_dim / 2, rest = Tile::kD - a.rotary_dim;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * (pairs + rest); i += Tile::kThreads) {
    const int row = i / (pairs + rest), item = i % (pairs + rest);
    const bool real = rows.has(row);
    const int64_t token_row = real ? rows.token_row(row) : rows.first_token_row;
    const float* q = a.q + token_row * a.q_stride + int64_t{rows.head(row)} * a.head_dim;
    typename Tile::Key* to = query + row * Tile::kPitch;
    if (item < pairs) {
      const int2 d = pair_dims(a, item);
      const float2 value = real ? rotated_pair(a, q, token_row, item) : float2{0.0F, 0.0F};
      store_query<Tile>(to + d.x, value.x);
      store_query<Tile>(to + d.y, value.y);
    } else {
      const int d = a.rotary_dim + item - pairs;
      store_query<Tile>(to + d, real && d < a.head_dim ? q[d] * a.scale : 0.0F);
    }
  }
}

// Starts copying keys (or values) [first, first + kKeys) of a head, which lie in one page, to shared memory:
// zeros at and beyond `end`, where the cache may hold anything, and beyond head_dim. part: where the layer's
// keys (values) begin in that page.
template <class Tile, class T>
__device__ __forceinline__ void load_tile(const T* part, int head_dim, int kv_head, int64_t first,
                                          int64_t end, T* tile) {
  constexpr int kChunks = Tile::kD / 8;
  const T* from = part + kv_index(kv_head, first, 0, head_dim);
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kKeys * kChunks; i += Tile::kThreads) {
    const int key = i / kChunks, d = i % kChunks * 8;
    const bool valid = first + key < end && d < head_dim;
    cp_async16(tile + key * Tile::kPitch + d, from + (valid ? key * head_dim + d : 0), valid);
  }
}

// A warp's 16 rows of q in registers, or, for the widest heads, nothing.
template <class Tile>
struct QueryFragments {
  static constexpr int kSteps = Tile::kQueryInRegisters ? Tile::kD / 16 : 0;
  uint32_t words[Tile::kTerms][kSteps == 0 ? 1 : kSteps][4];
};

template <class Tile>
__device__ __forceinline__ void load_query_fragment(const typename Tile::Key* query, int row_group, int step,
                                                    uint32_t (&a)[4]) {
  const int lane = lane_index();
  ldmatrix_x4(a, query + (row_group * 16 + lane % 16) * Tile::kPitch + step * 16 + lane / 16 * 8);
}

template <class Tile>
__device__ __forceinline__ void load_fragments(const typename Tile::Key* query, int row_group,
                                               QueryFragments<Tile>& fragments) {
#pragma unroll
  for (int term = 0; term < Tile::kTerms; ++term) {
#pragma unroll
    for (int step = 0; step < QueryFragments<Tile>::kSteps; ++step) {
      load_query_fragment<Tile>(query + term * Tile::kQueryElements, row_group, step,
                                fragments.words[term][step]);
    }
  }
}

// scores = q k^T for the warp's 16 rows and kWarpKeys keys from `keys` on.
template <class Tile>
__device__ __forceinline__ void score_keys(const QueryFragments<Tile>& fragments,
                                           const typename Tile::Key* query, int row_group,
                                           const typename Tile::Key* keys,
                                           float (&scores)[Tile::kWarpKeys / 8][4]) {
  const int lane = lane_index();
  const typename Tile::Key* lane_row = keys + (lane / 16 * 8 + lane % 8) * Tile::kPitch + lane / 8 % 2 * 8;
#pragma unroll
  for (int step = 0; step < Tile::kD / 16; ++step) {
    uint32_t a[Tile::kTerms][4];
#pragma unroll
    for (int term = 0; term < Tile::kTerms; ++term) {
      if constexpr (Tile::kQueryInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[term][i] = fragments.words[term][step][i];
      } else {
        load_query_fragment<Tile>(query + term * Tile::kQueryElements, row_group, step, a[term]);
      }
    }
#pragma unroll
    for (int pair = 0; pair < Tile::kWarpKeys / 16; ++pair) {
      uint32_t b[4];
      ldmatrix_x4(b, lane_row + pair * 16 * Tile::kPitch + step * 16);
#pragma unroll
      for (int term = 0; term < Tile::kTerms; ++term) {
        mma_16x8x16<typename Tile::Key>(scores[2 * pair], a[term], b[0], b[1]);
        mma_16x8x16<typename Tile::Key>(scores[2 * pair + 1], a[term], b[2], b[3]);
      }
    }
  }
}

template <class Tile>
__device__ __forceinline__ void cap_scores(const Attention& a, float (&scores)[Tile::kWarpKeys / 8][4]) {
#pragma unroll
  for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = capped_score(a, scores[n][i]);
  }
}

// ALiBi: adds slope * (key - position), of the lane's two rows from `row` and `row` + 8 on. What it needs of
// a row is worked out here for every tile: kept over the tiles, it would take registers from all that have
// none.
template <class Tile>
__device__ __forceinline__ void add_distances(const Attention& a, const PackedRows& rows, int row,
                                              const int64_t (&positions)[2], int64_t first_key,
                                              float (&scores)[Tile::kWarpKeys / 8][4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float slope = a.slopes[rows.head(row + 8 * r)] * kLog2E;
    const float distance = static_cast<float>(static_cast<int>(first_key + 2 * t - positions[r]));
#pragma unroll
    for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
      scores[n][2 * r] += slope * (distance + static_cast<float>(n * 8));
      scores[n][2 * r + 1] += slope * (distance + static_cast<float>(n * 8 + 1));
    }
  }
}

// Masks the keys that a row does not see. positions: of the lane's two rows; a padding row's is -1.
template <class Tile>
__device__ __forceinline__ void apply_mask(const Attention& a, const int64_t (&positions)[2],
                                           int64_t first_key, float (&scores)[Tile::kWarpKeys / 8][4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t key = first_key + n * 8 + 2 * t + i % 2, position = positions[i / 2];
      if (key > position || key < a.first_key(position)) scores[n][i] = -INFINITY;
    }
  }
}

// Scores become weights exp2(score - top) under the new running maximum, and what was summed under the old
// one shrinks.
template <class Tile>
__device__ __forceinline__ void online_softmax_update(float (&scores)[Tile::kWarpKeys / 8][4],
                                                      RowState<Tile>& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = state.top[r];
#pragma unroll
    for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
      top = fmaxf(top, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 2));
    const float base = top == -INFINITY ? 0.0F : top;  // a row that sees nothing yet: all weights are 0
    const float shrink = exp2f(state.top[r] - base);
    state.top[r] = top;
    state.sum[r] *= shrink;
#pragma unroll
    for (int n = 0; n < Tile::kWarpKeys / 8; ++n) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        scores[n][i] = exp2f(scores[n][i] - base);
        state.sum[r] += scores[n][i];
      }
    }
#pragma unroll
    for (int n = 0; n < Tile::kD / 8; ++n) {
      state.out[n][2 * r] *= shrink;
      state.out[n][2 * r + 1] *= shrink;
    }
  }
}

// Two neighbouring weights as an mma operand: the high term, and the low one in *rest.
template <class T>
__device__ __forceinline__ uint32_t split_pair(float x, float y, uint32_t* rest) {
  const T high_x = from_float<T>(x), high_y = from_float<T>(y);
  *rest = pack2<T>(x - to_float(high_x), y - to_float(high_y));
  return high_x.bits | uint32_t{high_y.bits} << 16;
}

// state.out += weights v. The weights' fragments of two mma results side by side are one mma operand.
template <class Tile>
__device__ __forceinline__ void add_values(const float (&weights)[Tile::kWarpKeys / 8][4],
                                           const typename Tile::Value* values, RowState<Tile>& state) {
  using V = typename Tile::Value;
  const int lane = lane_index();
  const V* lane_row = values + lane % 16 * Tile::kPitch + lane / 16 * 8;
#pragma unroll
  for (int pair = 0; pair < Tile::kWarpKeys / 16; ++pair) {
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&half)[4] = weights[2 * pair + i / 2];
      a[0][i] = split_pair<V>(half[i % 2 * 2], half[i % 2 * 2 + 1], &a[1][i]);
    }
#pragma unroll
    for (int step = 0; step < Tile::kD / 16; ++step) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, lane_row + pair * 16 * Tile::kPitch + step * 16);
#pragma unroll
      for (int term = 0; term < Tile::kTerms; ++term) {
        mma_16x8x16<V>(state.out[2 * step], a[term], b[0], b[1]);
        mma_16x8x16<V>(state.out[2 * step + 1], a[term], b[2], b[3]);
      }
    }
  }
}

}  // namespace lariat::cuda
