#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_tile.cuh"

// Blocks have 128 or 64 packed rows (prefill), or 16 (decode), with keys shared between warps and blocks.
namespace lariat::cuda {
namespace {

struct RowTarget {
  char* at;
  float factor;
  bool bf16;  // else f32

  __device__ __forceinline__ void write(int d, float x, float y) const {
    if (bf16) {
      *reinterpret_cast<uint32_t*>(at + d * 2) = pack2_quick<BFloat16>(x * factor, y * factor);
    } else {
      *reinterpret_cast<float2*>(at + d * 4) = {x * factor, y * factor};
    }
  }
};

// Writes a finished row to `out`, or to a partial result if blocks share the keys.
struct RowWriter {
  const Attention& a;
  const PackedRows& rows;
  int split;

  __device__ int64_t partial(int row) const {
    return state_index(a, split, rows.token_row(row), rows.head(row));
  }
  __device__ RowTarget target(int row, float sum) const {
    if (a.splits > 1) return {reinterpret_cast<char*>(a.partial + partial(row) * a.head_dim), 1.0F, false};
    const bool bf16 = a.out_dtype == DType::kBF16;
    return {head_of_out(a, rows.token_row(row), rows.head(row), bf16 ? 2 : 4), 1.0F / sum, bf16};
  }
  __device__ void write_state(int row, float base, float sum) const {
    if (a.splits > 1) a.state[partial(row)] = {base, sum};
  }
};

// kKeyWarps = 1: each warp owns its rows.
template <class Tile>
__device__ void write_rows(const RowWriter& writer, int first_row, const RowState<Tile>& state) {
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 16 * i + g + 8 * r;
      if (!writer.rows.has(row)) continue;
      const RowTarget target = writer.target(row, state.sum[i][r]);
#pragma unroll
      for (int n = 0; n < Tile::kD / 8; ++n) {
        const int d = n * 8 + 2 * t;
        if (d < writer.a.value_dim) target.write(d, state.out[i][n][2 * r], state.out[i][n][2 * r + 1]);
      }
      if (t == 0) writer.write_state(row, state.base[i][r], state.sum[i][r]);
    }
  }
}

// kRowWarps = 1: merges the warps' results in shared memory, over the key tiles.
template <class Tile>
__device__ void merge_and_write_rows(const RowWriter& writer, const RowState<Tile>& state,
                                     unsigned char* shared) {
  constexpr int kWarps = Tile::kKeyGroups;
  static_assert(sizeof(float) * kWarps * 16 * (Tile::kD + 2) <= 2 * Tile::kStages * Tile::kTileBytes);
  auto* out = reinterpret_cast<float*>(shared);                            // [kWarps][16][kD]
  auto* states = reinterpret_cast<float2*>(out + kWarps * 16 * Tile::kD);  // [kWarps][16]
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, g = thread % kWarpSize / 4, t = thread % 4;
  __syncthreads();  // all warps are done with the key tiles
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp * 16 + g + 8 * r;
    if (!writer.rows.has(g + 8 * r)) continue;
#pragma unroll
    for (int n = 0; n < Tile::kD / 8; ++n) {
      *reinterpret_cast<float2*>(out + row * Tile::kD + n * 8 + 2 * t) = {state.out[0][n][2 * r],
                                                                          state.out[0][n][2 * r + 1]};
    }
    if (t == 0) states[row] = {state.base[0][r], state.sum[0][r]};
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
      const float2 part = *reinterpret_cast<const float2*>(out + (w * 16 + row) * Tile::kD + d);
      sum += weight * s.y;
      x += weight * part.x;
      y += weight * part.y;
    }
    writer.target(row, sum).write(d, x, y);
    if (d == 0) writer.write_state(row, top, sum);
  }
}

// Merges the tile's splits, in the last block.
template <class Tile>
__device__ void merge_tile(const Attention& a, const PackedRows& rows, unsigned char* shared) {
  using Board = MergeBoard<Tile::kRows, 4 * Tile::kThreads>;
  static_assert(sizeof(Board) <= 2 * Tile::kStages * Tile::kTileBytes);
  Board& board = *reinterpret_cast<Board*>(shared);
  if (!is_last_split(a, board.number)) return;
  const auto left = static_cast<int>(rows.count - rows.first);
  merge_splits<4>(a, rows, left < Tile::kRows ? left : Tile::kRows, board.weights, board.sums);
}

// Rows of one sequence and one KV head, recomputed at each use to save registers.
struct Block {
  PackedRows rows;
  unsigned sequence;
};

template <class Tile>
__device__ __forceinline__ Block block_at(const Attention& a, unsigned block) {
  const auto heads = static_cast<unsigned>(a.n_kv_heads), count = static_cast<unsigned>(a.step.count);
  const unsigned item = block / heads, sequence = item % count;
  const unsigned tile = (gridDim.x / heads - 1 - item) / count;
  const Sequence s = a.step.sequences[sequence];
  const auto group = static_cast<unsigned>(a.group());
  return {{s.first_row, static_cast<int>(s.first_position), tile * Tile::kRows,
           static_cast<unsigned>(s.n_tokens) * group, group, static_cast<int>(block % heads)},
          sequence};
}

// Work of a block and of this thread's warp.
template <class Tile>
struct Place {
  void* const* pages;
  int kv_head;
  int low_position, high_position;  // of the block's rows
  int warp_low, warp_high;          // of the warp's rows
  const AttentionRange& range;

  __device__ Place(const Attention& a, const Block& block)
      : pages(a.step.pages(block.sequence)), kv_head(block.rows.kv_head), range(Share(a).range) {
    const PackedRows& rows = block.rows;
    low_position = rows.position(0);
    high_position = rows.has(Tile::kRows - 1) ? rows.position(Tile::kRows - 1)
                                              : rows.position(static_cast<int>(rows.count - 1 - rows.first));
    warp_low = rows.position(first_row());
    warp_high = rows.position(first_row() + Tile::kWarpRows - 1);
  }

  __device__ static int first_row() { return warp_index() % Tile::kRowGroups * Tile::kWarpRows; }
  __device__ static int first_key() {
    return Tile::kKeyGroups == 1 ? 0 : warp_index() / Tile::kRowGroups * Tile::kWarpKeys;
  }
  // Whether every row of the warp sees every key of the tile at `first`, or no row sees any.
  __device__ bool all_visible(int first) const {
    return first + Tile::kKeys <= range.end.at(warp_low) && first >= range.begin.at(warp_high);
  }
  __device__ bool none_visible(int first) const {
    return first >= range.end.at(warp_high) || first + Tile::kKeys <= range.begin.at(warp_low);
  }
};

// Attention sinks: a head's rows start with a weight of 1.
template <class Tile>
__device__ __forceinline__ void start_at_sinks(const Attention& a, const PackedRows& rows, int first_row,
                                               int first_key, RowState<Tile>& state) {
  if (a.sinks == nullptr || first_key > 0) return;
  const Share mine(a);
  const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
    for (int r = 0; r < 2; ++r) {
      state.base[i][r] = mine.start(a, rows.head(first_row + 16 * i + g + 8 * r));
      state.sum[i][r] = t == 0 && state.base[i][r] != -INFINITY ? 1.0F : 0.0F;
    }
  }
}

struct TileKeys {
  int first, end;  // first is a multiple of the tile's keys
};

// This block's share of the keys that any of its rows sees.
template <class Tile>
__device__ __forceinline__ TileKeys keys_of(const Attention& a, int low_position, int high_position) {
  const Share mine(a);
  const int first = mine.range.begin.at(low_position) / Tile::kKeys * Tile::kKeys;
  const int last = mine.range.end.at(high_position), end = last > first ? last : first;
  const int share = ceil_div(ceil_div(end - first, Tile::kKeys), a.shares) * Tile::kKeys;
  const int from = first + mine.index * share;
  return {from, from + share < end ? from + share : end};
}

// The next tile's page is looked up during the copies.
template <class Tile>
struct TileCopies {
  const Attention& a;
  void* const* pages;
  void* page;
  int64_t k_offset;
  int kv_head;

  __device__ TileCopies(const Attention& attention, const Place<Tile>& place, int first)
      : a(attention),
        pages(place.pages),
        page(pages[first / kKvPage]),
        k_offset(place.range.k_offset),
        kv_head(place.kv_head) {}
  __device__ __forceinline__ void start(int first, int end, unsigned char* tiles) {
    using K = typename Tile::Key;
    using V = typename Tile::Value;
    unsigned char* to = tiles + Tile::stage(first);
    const auto offset = static_cast<int>(kv_index(kv_head, first, 0, a.head_dim));
    load_tile<Tile>(in_page<const K>(page, k_offset) + offset, a.head_dim, end - first,
                    reinterpret_cast<K*>(to));
    load_tile<Tile>(in_page<const V>(page, a.v_offset) + offset, a.head_dim, end - first,
                    reinterpret_cast<V*>(to + Tile::kTileBytes));
    const int next = first + Tile::kKeys;
    if (next < end) page = pages[next / kKvPage];
  }
};

// Processes each tile while the next is copied; `copies` has started the first.
template <class Tile>
__device__ __forceinline__ void walk_keys(const Attention& a, const Place<Tile>& place, const TileKeys& keys,
                                          const typename Tile::Key* query, TileCopies<Tile>& copies,
                                          unsigned char* tiles, RowState<Tile>& state) {
  const int offset = Place<Tile>::first_key();
  QueryFragments<Tile> fragments;
  if constexpr (Tile::kQueryInRegisters) {
    __syncthreads();  // the query is loaded
    load_fragments<Tile>(query, fragments);
  }
  for (int first = keys.first; first < keys.end; first += Tile::kKeys) {
    cp_async_wait<0>();
    __syncthreads();  // the tile is loaded, and the next may overwrite the previous tile
    if (first + Tile::kKeys < keys.end) {
      copies.start(first + Tile::kKeys, keys.end, tiles);
      cp_async_commit();
    }
    if (place.none_visible(first)) continue;
    const unsigned lane = recomputed(threadIdx.x % kWarpSize);
    const unsigned char* tile = tiles + Tile::stage(first);
    Scores<Tile> scores = {};
    score_keys<Tile>(fragments, query, reinterpret_cast<const typename Tile::Key*>(tile) + offset * Tile::kD,
                     lane, scores);
    if (a.softcap > 0.0F) cap_scores<Tile>(a, scores);
    if (a.slopes != nullptr) {
      const Block block = block_at<Tile>(a, recomputed(blockIdx.x));
      add_distances<Tile>(a, block.rows, Place<Tile>::first_row(), first + offset, scores);
    }
    if (!place.all_visible(first)) {
      const Block block = block_at<Tile>(a, recomputed(blockIdx.x));
      apply_mask<Tile>(place.range, block.rows, Place<Tile>::first_row(), first + offset, scores);
    }
    online_softmax_update<Tile>(scores, state);
    const auto* values = reinterpret_cast<const typename Tile::Value*>(tile + Tile::kTileBytes);
    add_values<Tile>(scores, values + offset * Tile::kD, lane, state);
  }
}

// Grid: x = KV heads (fastest) x sequences x tiles of packed rows, the latest positions first: they have the
// most work. y and z: Share. Bound by the tensor cores (prefill) or memory (decode).
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads) attention_mma_kernel(const __grid_constant__ Attention a) {
  LARIAT_DYNAMIC_SHARED(shared);
  auto* query = reinterpret_cast<typename Tile::Key*>(shared);
  unsigned char* tiles = shared + Tile::kQueryBytes;
  RowState<Tile> state;
  start_in_turn();
  const Block block = block_at<Tile>(a, blockIdx.x);
  if (!block.rows.has(0)) return;
  const Place<Tile> place(a, block);
  start_at_sinks<Tile>(a, block.rows, Place<Tile>::first_row(), Place<Tile>::first_key(), state);
  const TileKeys keys = keys_of<Tile>(a, place.low_position, place.high_position);
  if (keys.first < keys.end) {
    TileCopies<Tile> copies(a, place, keys.first);
    copies.start(keys.first, keys.end, tiles);
    cp_async_commit();
    load_query<Tile>(a, block.rows, query);
    walk_keys<Tile>(a, place, keys, query + Place<Tile>::first_row() * Tile::kD, copies, tiles, state);
  }
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.sum[i][r] += __shfl_xor_sync(kFullWarp, state.sum[i][r], 1);
      state.sum[i][r] += __shfl_xor_sync(kFullWarp, state.sum[i][r], 2);
    }
  }
  const Block same = block_at<Tile>(a, recomputed(blockIdx.x));
  const RowWriter writer = {a, same.rows, Share(a).split};
  if constexpr (Tile::kKeyGroups == 1) {
    write_rows<Tile>(writer, Place<Tile>::first_row(), state);
  } else {
    merge_and_write_rows<Tile>(writer, state, tiles);
    if (a.finished != nullptr) merge_tile<Tile>(a, same.rows, tiles);
  }
}

template <class Tile>
int64_t blocks_of(const Attention& a, const AttentionPlan& plan) {
  return ceil_div<int64_t>(plan.tokens * a.group(), Tile::kRows) * plan.sequences * a.n_kv_heads;
}

// Block shapes; kMinTiles: the fewest key tiles per split.
struct DecodeShape {
  static constexpr int kRowTiles = 1, kRowWarps = 1, kKeyWarps = 4, kMinTiles = 2;
};
struct ShortShape {
  static constexpr int kRowTiles = 1, kRowWarps = 4, kKeyWarps = 1, kMinTiles = 8;
};
struct LongShape {
  static constexpr int kRowTiles = 2, kRowWarps = 4, kKeyWarps = 1, kMinTiles = 8;
};

// Calls f(Tile{}) with the tile for a's dtypes and head size. Above 128 dimensions, tiles have fewer rows and
// key warps. Instantiations compile slowly: only four head sizes.
template <class Shape, class F>
void with_tile(const Attention& a, F&& f) {
  constexpr bool kFine = Shape::kKeyWarps > 1;  // decode
  constexpr int kWideKeyWarps = Shape::kKeyWarps > 2 ? 2 : Shape::kKeyWarps;
  const auto with_types = [&]<class K, class V>(K, V) {
    const auto with_dim = [&]<int kDim>(std::integral_constant<int, kDim>) {
      return f(AttentionTile<K, V, kDim, Shape::kRowTiles, Shape::kRowWarps, Shape::kKeyWarps, kFine>{});
    };
    if (a.head_dim <= 64) return with_dim(std::integral_constant<int, 64>{});
    if (a.head_dim <= 96) return with_dim(std::integral_constant<int, 96>{});
    if (a.head_dim <= 128) return with_dim(std::integral_constant<int, 128>{});
    return f(AttentionTile<K, V, 256, 1, Shape::kRowWarps, kWideKeyWarps, kFine>{});
  };
  if (a.v_dtype == DType::kF16) return with_types(Half{}, Half{});
  if (a.k_dtype == DType::kF16) return with_types(Half{}, BFloat16{});
  return with_types(BFloat16{}, BFloat16{});
}

template <class Shape>
int splits(const Attention& a, const AttentionPlan& plan) {
  int count = 1;
  with_tile<Shape>(a, [&]<class Tile>(Tile) {
    count = attention_splits(blocks_of<Tile>(a, plan), ceil_div<int64_t>(plan.keys, Tile::kKeys),
                             Shape::kMinTiles, plan.multiprocessors);
  });
  return count;
}

template <class Shape>
void launch_mma(const Attention& a, const AttentionPlan& plan, LaunchQueue& queue) {
  with_tile<Shape>(a, [&]<class Tile>(Tile) {
    launch(attention_mma_kernel<Tile>, share_grid(a, blocks_of<Tile>(a, plan)), dim3(Tile::kThreads),
           Tile::kSharedBytes, queue, a);
  });
}

}  // namespace

const AttentionKernel kAttentionDecode = {true, splits<DecodeShape>, launch_mma<DecodeShape>};
const AttentionKernel kAttentionShort = {false, splits<ShortShape>, launch_mma<ShortShape>};
const AttentionKernel kAttentionPrefill = {false, splits<LongShape>, launch_mma<LongShape>};

}  // namespace lariat::cuda
