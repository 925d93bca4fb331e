#pragma once
#include "kernels/cuda/attention_tile.cuh"

// The attention kernel on tensor cores, made of the steps of attention_tile.cuh, and its launch.
namespace lariat::cuda {

// The place of a row's elements, and what they are multiplied with.
struct RowTarget {
  float* at;
  float factor;

  __device__ __forceinline__ void write(int d, float x, float y) const {
    at[d] = x * factor;
    at[d + 1] = y * factor;
  }
};

// Where a finished row goes: to `out`, or as a partial result when the keys are shared between blocks.
template <class Tile>
struct RowWriter {
  const Attention& a;
  int64_t first_row;
  int kv_head, split;

  __device__ bool has(int row) const { return first_row + row < a.rows(); }
  __device__ int64_t token(int row) const { return (first_row + row) / a.group(); }
  __device__ int head(int row) const {
    return kv_head * a.group() + static_cast<int>((first_row + row) % a.group());
  }
  // Of `row`, whose weights sum up to `sum`. Worked out once per row: the writes are many and unrolled.
  __device__ RowTarget target(int row, float sum) const {
    if (a.splits > 1) return {a.partial + state_index(a, split, token(row), head(row)) * a.head_dim, 1.0F};
    return {a.out + token(row) * a.out_stride + int64_t{head(row)} * a.head_dim, 1.0F / sum};
  }
  __device__ void write_state(int row, float top, float sum) const {
    if (a.splits > 1) a.state[state_index(a, split, token(row), head(row))] = {top, sum};
  }
};

// kKeyWarps = 1: each warp has its rows to itself.
template <class Tile>
__device__ void write_rows(const RowWriter<Tile>& writer, int row_group, const RowState<Tile>& state) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row_group * 16 + g + 8 * r;
    if (!writer.has(row)) continue;
    const RowTarget target = writer.target(row, state.sum[r]);
#pragma unroll
    for (int n = 0; n < Tile::kD / 8; ++n) {
      const int d = n * 8 + 2 * t;
      if (d < writer.a.head_dim) target.write(d, state.out[n][2 * r], state.out[n][2 * r + 1]);
    }
    if (t == 0) writer.write_state(row, state.top[r], state.sum[r]);
  }
}

// kRowWarps = 1: the warps' results for the same 16 rows meet in shared memory, where the key tiles were.
template <class Tile>
__device__ void merge_and_write_rows(const RowWriter<Tile>& writer, const RowState<Tile>& state,
                                     unsigned char* shared) {
  constexpr int kWarps = Tile::kKeyGroups;
  static_assert(sizeof(float) * kWarps * 16 * (Tile::kD + 2) <= 2 * Tile::kStages * Tile::kTileBytes);
  auto* out = reinterpret_cast<float*>(shared);                            // [kWarps][16][kD]
  auto* states = reinterpret_cast<float2*>(out + kWarps * 16 * Tile::kD);  // [kWarps][16]
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, g = thread % kWarpSize / 4, t = thread % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp * 16 + g + 8 * r;
#pragma unroll
    for (int n = 0; n < Tile::kD / 8; ++n) {
      out[row * Tile::kD + n * 8 + 2 * t] = state.out[n][2 * r];
      out[row * Tile::kD + n * 8 + 2 * t + 1] = state.out[n][2 * r + 1];
    }
    if (t == 0) states[row] = {state.top[r], state.sum[r]};
  }
  __syncthreads();
  for (int i = thread; i < 16 * Tile::kD / 2; i += Tile::kThreads) {
    const int row = i / (Tile::kD / 2), d = i % (Tile::kD / 2) * 2;
    if (!writer.has(row) || d >= writer.a.head_dim) continue;
    float top = -INFINITY;
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, states[w * 16 + row].x);
    const float base = top == -INFINITY ? 0.0F : top;
    float sum = 0.0F, x = 0.0F, y = 0.0F;
    for (int w = 0; w < kWarps; ++w) {
      const float2 s = states[w * 16 + row];
      const float weight = exp2f(s.x - base);
      sum += weight * s.y;
      x += weight * out[(w * 16 + row) * Tile::kD + d];
      y += weight * out[(w * 16 + row) * Tile::kD + d + 1];
    }
    writer.target(row, sum).write(d, x, y);
    if (d == 0) writer.write_state(row, top, sum);
  }
}

// What a block works on, and where this thread's warp stands in it.
template <class Tile>
struct Place {
  int row_group, key_group, kv_head, split;
  int64_t first_row, low_position, high_position;
  bool full;             // no padding rows
  int64_t positions[2];  // of the lane's two rows; -1 for padding, which sees nothing

  __device__ explicit Place(const Attention& a) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    row_group = warp % Tile::kRowGroups;
    key_group = warp / Tile::kRowGroups;
    kv_head = static_cast<int>(blockIdx.y);
    split = static_cast<int>(blockIdx.z);
    first_row = int64_t{gridDim.x - 1 - blockIdx.x} * Tile::kRows;
    full = first_row + Tile::kRows <= a.rows();
    const int64_t first_position = a.first_position.get();
    low_position = first_position + first_row / a.group();
    high_position = first_position + (full ? first_row + Tile::kRows - 1 : a.rows() - 1) / a.group();
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first_row + row_group * 16 + lane / 4 + 8 * r;
      positions[r] = row < a.rows() ? first_position + row / a.group() : -1;
    }
  }

  // Whether every row sees every key of the tile at `first`.
  __device__ bool all_visible(const Attention& a, int64_t first) const {
    return full && first + Tile::kKeys - 1 <= low_position && first >= a.first_key(high_position);
  }
};

// Walks over the tiles of `range`, copying the next one while the present one is worked on.
template <class Tile>
__device__ __forceinline__ void walk_keys(const Attention& a, const Place<Tile>& place, const KeyRange& range,
                                          const typename Tile::Key* query,
                                          const QueryFragments<Tile>& fragments, unsigned char* tiles,
                                          RowState<Tile>& state) {
  using K = typename Tile::Key;
  using V = typename Tile::Value;
  const auto stage_at = [&](int64_t stage) { return tiles + stage % Tile::kStages * 2 * Tile::kTileBytes; };
  const auto load_stage = [&](int64_t first, int64_t stage) {
    auto* keys = reinterpret_cast<K*>(stage_at(stage));
    auto* values = reinterpret_cast<V*>(stage_at(stage) + Tile::kTileBytes);
    load_tile<Tile>(a.k_blocks, a, place.kv_head, first, range.end, keys);
    load_tile<Tile>(a.v_blocks, a, place.kv_head, first, range.end, values);
  };
  if (range.first < range.end) load_stage(range.first, 0);
  cp_async_commit();
  const int offset = place.key_group * Tile::kWarpKeys;
  int64_t stage = 0;
  for (int64_t first = range.first; first < range.end; first += Tile::kKeys, ++stage) {
    if (first + Tile::kKeys < range.end) load_stage(first + Tile::kKeys, stage + 1);
    cp_async_commit();  // an empty group at the end keeps the count
    cp_async_wait<1>();
    __syncthreads();
    const auto* keys = reinterpret_cast<const K*>(stage_at(stage)) + offset * Tile::kPitch;
    const auto* values =
        reinterpret_cast<const V*>(stage_at(stage) + Tile::kTileBytes) + offset * Tile::kPitch;
    float scores[Tile::kWarpKeys / 8][4] = {};
    score_keys<Tile>(fragments, query, place.row_group, keys, scores);
    if (!place.all_visible(a, first)) apply_mask<Tile>(a, place.positions, first + offset, scores);
    online_softmax_update<Tile>(scores, state);
    add_values<Tile>(scores, values, state);
    __syncthreads();  // before the next round's copies overwrite this stage
  }
  cp_async_wait<0>();
}

// Grid: x = tiles of packed rows, the latest positions (which have most to do) first; y = KV heads;
// z = splits. Threads and shared memory: AttentionTile. Bound by the tensor cores in prefill and by memory in
// decode.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads) attention_mma_kernel(const __grid_constant__ Attention a) {
  LARIAT_DYNAMIC_SHARED(shared);
  auto* query = reinterpret_cast<typename Tile::Key*>(shared);
  unsigned char* tiles = shared + Tile::kTileOffset;
  const Place<Tile> place(a);
  load_query<Tile>(a, place.first_row, place.kv_head, query);
  __syncthreads();
  QueryFragments<Tile> fragments;
  load_fragments<Tile>(query, place.row_group, fragments);
  if constexpr (Tile::kTileOffset == 0) __syncthreads();  // the key tiles overwrite the query

  RowState<Tile> state;
  const KeyRange range = key_range<Tile>(a, place.low_position, place.high_position, place.split);
  walk_keys<Tile>(a, place, range, query, fragments, tiles, state);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.sum[r] += __shfl_xor_sync(kFullWarp, state.sum[r], 1);
    state.sum[r] += __shfl_xor_sync(kFullWarp, state.sum[r], 2);
  }
  const RowWriter<Tile> writer = {a, place.first_row, place.kv_head, place.split};
  if constexpr (Tile::kKeyGroups == 1) {
    write_rows<Tile>(writer, place.row_group, state);
  } else {
    merge_and_write_rows<Tile>(writer, state, tiles);
  }
}

template <class Tile>
int mma_splits(const Attention& a, int multiprocessors) {
  const int64_t blocks = ceil_div<int64_t>(a.rows(), Tile::kRows) * a.n_kv_heads;
  return attention_splits(blocks, ceil_div<int64_t>(a.planned_keys(), Tile::kKeys), 2, multiprocessors);
}

template <class Tile>
void launch_mma(const Attention& a, Stream stream) {
  const dim3 grid(to_unsigned(ceil_div<int64_t>(a.rows(), Tile::kRows)), static_cast<unsigned>(a.n_kv_heads),
                  static_cast<unsigned>(a.splits));
  launch(attention_mma_kernel<Tile>, grid, dim3(Tile::kThreads), Tile::kSharedBytes, stream, a);
}

// Calls f(Tile{}) with the tile for a's dtypes and head size; kRowWarps x kKeyWarps warps up to 128
// dimensions, fewer for the keys above. Each instantiation is a heavy compile: the three pairs of dtypes that
// engines use, four head sizes.
template <int kRowWarps, int kKeyWarps, class F>
void with_tile(const Attention& a, F&& f) {
  constexpr bool kFine = kKeyWarps > 1;  // decode
  constexpr int kWideKeyWarps = kKeyWarps > 2 ? 2 : kKeyWarps;
  const auto with_types = [&]<class K, class V>(K, V) {
    if (a.head_dim <= 64) return f(AttentionTile<K, V, 64, kRowWarps, kKeyWarps, kFine>{});
    if (a.head_dim <= 96) return f(AttentionTile<K, V, 96, kRowWarps, kKeyWarps, kFine>{});
    if (a.head_dim <= 128) return f(AttentionTile<K, V, 128, kRowWarps, kKeyWarps, kFine>{});
    return f(AttentionTile<K, V, 256, kRowWarps, kWideKeyWarps, kFine>{});
  };
  if (a.v_dtype == DType::kF16) return with_types(Half{}, Half{});
  if (a.k_dtype == DType::kF16) return with_types(Half{}, BFloat16{});
  return with_types(BFloat16{}, BFloat16{});
}

}  // namespace lariat::cuda
