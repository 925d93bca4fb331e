#include "kernels/cuda/attention_tile.cuh"

// The attention kernel on tensor cores, made of the steps of attention_tile.cuh, and its launches: for many
// packed rows of a sequence (prefill) 64 of them per block, for few (decode) 16, the keys shared between the
// block's warps and between blocks.
namespace lariat::cuda {
namespace {

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
struct RowWriter {
  const Attention& a;
  const PackedRows& rows;
  int split;

  __device__ int64_t partial(int row) const {
    return state_index(a, split, rows.token_row(row), rows.head(row));
  }
  // Of `row`, whose weights sum up to `sum`. Worked out once per row: the writes are many and unrolled.
  __device__ RowTarget target(int row, float sum) const {
    if (a.splits > 1) return {a.partial + partial(row) * a.head_dim, 1.0F};
    return {a.out + rows.token_row(row) * a.out_stride + int64_t{rows.head(row)} * a.value_dim, 1.0F / sum};
  }
  __device__ void write_state(int row, float top, float sum) const {
    if (a.splits > 1) a.state[partial(row)] = {top, sum};
  }
};

// kKeyWarps = 1: each warp has its rows to itself.
template <class Tile>
__device__ void write_rows(const RowWriter& writer, int row_group, const RowState<Tile>& state) {
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row_group * 16 + g + 8 * r;
    if (!writer.rows.has(row)) continue;
    const RowTarget target = writer.target(row, state.sum[r]);
#pragma unroll
    for (int n = 0; n < Tile::kD / 8; ++n) {
      const int d = n * 8 + 2 * t;
      if (d < writer.a.value_dim) target.write(d, state.out[n][2 * r], state.out[n][2 * r + 1]);
    }
    if (t == 0) writer.write_state(row, state.top[r], state.sum[r]);
  }
}

// kRowWarps = 1: the warps' results for the same 16 rows meet in shared memory, where the key tiles were.
template <class Tile>
__device__ void merge_and_write_rows(const RowWriter& writer, const RowState<Tile>& state,
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
    if (!writer.rows.has(row) || d >= writer.a.value_dim) continue;
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

// What a block works on, and where this thread's warp stands in it. A block has rows of one sequence only.
template <class Tile>
struct Place {
  int row_group, key_group, split;
  PackedRows rows;
  void* const* pages;
  int64_t low_position, high_position;
  bool full;             // no padding rows
  int64_t positions[2];  // of the lane's two rows; -1 for padding, which sees nothing

  __device__ explicit Place(const Attention& a) {
    const int warp = warp_index(), lane = lane_index();
    row_group = warp % Tile::kRowGroups;
    key_group = warp / Tile::kRowGroups;
    split = static_cast<int>(blockIdx.z);
    const auto count = static_cast<unsigned>(a.step.count);
    const unsigned sequence = blockIdx.x % count, tile = (gridDim.x - 1 - blockIdx.x) / count;
    const Sequence s = a.step.sequences[sequence];
    pages = a.step.pages(sequence);
    rows = {s.first_row, int64_t{tile} * Tile::kRows, s.n_tokens * a.group(), a.group(),
            static_cast<int>(blockIdx.y)};
    full = rows.first + Tile::kRows <= rows.count;
    low_position = s.first_position + rows.first / rows.group;
    high_position = s.first_position + (full ? rows.first + Tile::kRows - 1 : rows.count - 1) / rows.group;
    for (int r = 0; r < 2; ++r) {
      const int row = row_group * 16 + lane / 4 + 8 * r;
      positions[r] = rows.has(row) ? s.first_position + (rows.first + row) / rows.group : -1;
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
    void* page = place.pages[first / kKvPage];
    const int head = place.rows.kv_head;
    load_tile<Tile>(in_page<const K>(page, a.k_offset), a.head_dim, head, first, range.end, keys);
    load_tile<Tile>(in_page<const V>(page, a.v_offset), a.head_dim, head, first, range.end, values);
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
    if (a.softcap > 0.0F) cap_scores<Tile>(a, scores);
    if (a.slopes != nullptr) {
      add_distances<Tile>(a, place.rows, place.row_group * 16 + lane_index() / 4, place.positions,
                          first + offset, scores);
    }
    if (!place.all_visible(a, first)) apply_mask<Tile>(a, place.positions, first + offset, scores);
    online_softmax_update<Tile>(scores, state);
    add_values<Tile>(scores, values, state);
    __syncthreads();  // before the next round's copies overwrite this stage
  }
  cp_async_wait<0>();
}

// Grid: x = (tiles of packed rows of the longest sequence, the latest positions, which have most to do,
// first) x sequences; y = KV heads; z = splits. A block beyond the end of its sequence has nothing to do.
// Threads and shared memory: AttentionTile. Bound by the tensor cores in prefill and by memory in decode.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads) attention_mma_kernel(const __grid_constant__ Attention a) {
  LARIAT_DYNAMIC_SHARED(shared);
  auto* query = reinterpret_cast<typename Tile::Key*>(shared);
  unsigned char* tiles = shared + Tile::kTileOffset;
  const Place<Tile> place(a);
  if (!place.rows.has(0)) return;
  load_query<Tile>(a, place.rows, query);
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
  const RowWriter writer = {a, place.rows, place.split};
  if constexpr (Tile::kKeyGroups == 1) {
    write_rows<Tile>(writer, place.row_group, state);
  } else {
    merge_and_write_rows<Tile>(writer, state, tiles);
  }
}

template <class Tile>
int64_t tiles_of(const Attention& a, const AttentionPlan& plan) {
  return ceil_div<int64_t>(plan.tokens * a.group(), Tile::kRows) * plan.sequences;
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

template <int kRowWarps, int kKeyWarps>
int splits(const Attention& a, const AttentionPlan& plan) {
  int count = 1;
  with_tile<kRowWarps, kKeyWarps>(a, [&]<class Tile>(Tile) {
    count = attention_splits(tiles_of<Tile>(a, plan) * a.n_kv_heads,
                             ceil_div<int64_t>(plan.keys, Tile::kKeys), 2, plan.multiprocessors);
  });
  return count;
}

template <int kRowWarps, int kKeyWarps>
void launch_mma(const Attention& a, const AttentionPlan& plan, LaunchQueue& queue) {
  with_tile<kRowWarps, kKeyWarps>(a, [&]<class Tile>(Tile) {
    const dim3 grid(to_unsigned(tiles_of<Tile>(a, plan)), static_cast<unsigned>(a.n_kv_heads),
                    static_cast<unsigned>(a.splits));
    launch(attention_mma_kernel<Tile>, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue, a);
  });
}

}  // namespace

const AttentionKernel kAttentionDecode = {splits<1, 4>, launch_mma<1, 4>};
const AttentionKernel kAttentionPrefill = {splits<4, 1>, launch_mma<4, 1>};

}  // namespace lariat::cuda
