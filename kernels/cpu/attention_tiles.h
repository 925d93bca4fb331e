#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/cpu/amx_pack.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/cpu_features.h"

// attention_block with bf16 operands, on tile registers or on vectors of pairs. Queries times log2(e), keys,
// values and softmax weights are rounded to bf16; sums are f32. For bf16 models.
//
// A row's bits depend neither on other rows nor on the split of a prompt: blocks of keys are aligned to
// pages, the running maximum is rounded up to an integer (log2) for exact rescaling, and the sum of weights
// has 16 parts, by position, until the end.
namespace lariat::cpu {

constexpr int64_t kTiledRows = 2 * kTileRows;  // q and acc are padded to a multiple
constexpr int64_t kTiledKeys = kKvPage;
constexpr int64_t kScoreStride = kTiledKeys + kTileRows;       // floats
constexpr int64_t kWeightStride = kTiledKeys / 2 + kTileRows;  // pairs
constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;

// Whether the processor multiplies bf16 faster than f32 and the cache has a suitable shape and dtypes.
inline bool has_tiled_attention(const KvLayer& layer) {
  if (layer.head_dim % kTileColumns != 0) return false;
  if (layer.v_dtype != DType::kBF16 || layer.k_dtype == DType::kF32) return false;
  return has_amx_bf16() || has_avx512_bf16();
}

// Layout of a task's scratch.
struct TiledMemory {
  char* queries;      // per 32 rows: [2 tiles][head_dim / 32] tiles
  char* keys;         // [16 positions][head_dim / 32] tiles of transposed pairs
  char* values;       // [32 positions][value_stride / 16] tiles; a pair is positions i and i + 16
  uint16_t* rounded;  // page of keys or values
  float* scores;      // [32][kScoreStride]
  uint32_t* weights;  // [32][kWeightStride] pairs, as in values
  float* sums;        // [rows][16]
  int64_t bytes;      // total

  TiledMemory(int64_t rows, const KvLayer& layer, void* memory) {
    const int64_t page_bytes = kTiledKeys * layer.head_dim * 2;
    int64_t taken = 0;
    const auto take = [&](int64_t size) -> char* {
      const int64_t at = std::exchange(taken, taken + size);
      return memory == nullptr ? nullptr : static_cast<char*>(memory) + at;  // null memory: counts only
    };
    rows = round_up(rows, kTiledRows);
    queries = take(rows * layer.head_dim * 2);
    keys = take(page_bytes);
    values = take(page_bytes);
    rounded = reinterpret_cast<uint16_t*>(take(page_bytes));
    scores = reinterpret_cast<float*>(take(kTiledRows * kScoreStride * 4));
    weights = reinterpret_cast<uint32_t*>(take(kTiledRows * kWeightStride * 4));
    sums = reinterpret_cast<float*>(take(rows * kTileRows * 4));
    bytes = taken;
  }
};

// Packs a tile of values: to[i][d] = (from[i][d], from[i + 16][d]), i and d < 16.
void pack_value_pairs(const uint16_t* from, int64_t stride, void* to);

// Converts scores of the rows from `row` on at positions [base, base + keys) to weights; rescales max, sums
// and acc. keys: a multiple of 32.
void tiled_softmax(const AttentionTask& task, const TiledMemory& memory, int64_t row, int64_t base,
                   int64_t keys);

// multiply_tiles with 2 x 2 adjacent tiles at c.
template <class Tiles>
void multiply_square(const TilePlaces& a, const TilePlaces& b, int64_t depth, bool zero, char* c,
                     int64_t stride) {
  char* const corners[4] = {c, c + 64, c + kTileRows * stride, c + kTileRows * stride + 64};
  multiply_tiles<Tiles>(a, b, depth, zero, corners, stride);
}

// Replaces tile registers by AVX-512 with VDPBF16PS. Requires has_avx512_bf16().
struct PairVectors {
  static void configure(const TileConfig&) {}
  static void release() {}
};
template <>
void multiply_square<PairVectors>(const TilePlaces& a, const TilePlaces& b, int64_t depth, bool zero, char* c,
                                  int64_t stride);

// First visible position in a page for the rows from `row` on, rounded down to a tile of values.
inline int64_t first_packed(const AttentionTask& task, int64_t row, int64_t base) {
  return std::max<int64_t>(task.begin(row) - base, 0) / (2 * kTileRows) * (2 * kTileRows);
}

// Packs the task's head in the page of `base`, from the first visible tile up to last_key, then zeros: later
// memory may be non-finite.
inline void pack_page(const AttentionTask& task, int64_t base, const TiledMemory& memory) {
  const KvLayer& layer = *task.layer;
  const int64_t head_dim = layer.head_dim, half = head_dim / kTileColumns * kTileBytes;
  const int64_t start = first_packed(task, 0, base);
  const int64_t count = std::max<int64_t>(std::min(kTiledKeys, task.last_key - base) - start, 0);
  const int64_t positions = round_up(count, 2 * kTileRows);
  void* const page = task.pages[base / kKvPage];
  const auto round = [&](void* data, DType dtype, int64_t cols) {
    const int64_t first =
        kv_index(task.kv_head, base + start, 0, head_dim) * static_cast<int64_t>(size_of(dtype));
    pack_rows({static_cast<char*>(data) + first, dtype, count, cols, head_dim},
              reinterpret_cast<char*>(memory.rounded), kTileColumns * 2, cols * 2);
    std::fill(memory.rounded + count * cols, memory.rounded + positions * cols, 0);
  };
  round(layer.keys(page), layer.k_dtype, head_dim);
  char* to = memory.keys + start / kTileRows * half;
  for (int64_t key = 0; key < positions; key += kTileRows) {
    for (int64_t d = 0; d < head_dim; d += kTileColumns, to += kTileBytes) {
      transpose_words(memory.rounded + key * head_dim + d, head_dim / 2, to);
    }
  }
  round(layer.values(page), layer.v_dtype, task.value_stride);
  to = memory.values + start / (2 * kTileRows) * (task.value_stride / kTileRows) * kTileBytes;
  for (int64_t key = 0; key < positions; key += 2 * kTileRows) {
    for (int64_t d = 0; d < task.value_stride; d += kTileRows, to += kTileBytes) {
      pack_value_pairs(memory.rounded + key * task.value_stride + d, task.value_stride, to);
    }
  }
}

template <class Tiles>
void attend_rows(const AttentionTask& task, const TiledMemory& memory, int64_t row, int64_t base) {
  const int64_t last = std::min(task.end(std::min(row + kTiledRows, task.rows) - 1), task.last_key) - base;
  const int64_t end = round_up(std::min(last, kTiledKeys), 2 * kTileRows);
  const int64_t first = first_packed(task, row, base);
  const int64_t depth = task.layer->head_dim / kTileColumns, half = depth * kTileBytes;
  const TilePlaces queries{memory.queries + row * task.layer->head_dim * 2, 64, half, kTileBytes};
  for (int64_t key = first; key < end; key += 2 * kTileRows) {
    const TilePlaces packed{memory.keys + key / kTileRows * half, 64, half, kTileBytes};
    multiply_square<Tiles>(queries, packed, depth, true, reinterpret_cast<char*>(memory.scores + key - first),
                           kScoreStride * 4);
  }
  tiled_softmax(task, memory, row, base + first, end - first);
  const TilePlaces weights{reinterpret_cast<char*>(memory.weights), kWeightStride * 4,
                           kTileRows * kWeightStride * 4, 64};
  for (int64_t d = 0; d < task.value_stride; d += 2 * kTileRows) {
    const int64_t block = task.value_stride / kTileRows * kTileBytes;
    const TilePlaces values{memory.values + first / (2 * kTileRows) * block + d / kTileRows * kTileBytes, 64,
                            kTileBytes, block};
    multiply_square<Tiles>(weights, values, (end - first) / kTileColumns, false,
                           reinterpret_cast<char*>(task.acc + row * task.stride + d), task.stride * 4);
  }
}

// Requires head_dim and value_stride in multiples of 32, q scaled by kLog2E, q and acc padded to kTiledRows,
// integer max in log2 units (also on return), first_key at the start of a page, and scratch of
// TiledMemory::bytes, aligned to 64.
template <class Tiles>
void attention_tiles(const AttentionTask& task) {
  const int64_t half = task.layer->head_dim / kTileColumns * kTileBytes;
  const TiledMemory memory(task.rows, *task.layer, task.scratch);
  for (int64_t row = 0; row < task.rows; row += kTileRows) {
    const Matrix q(task.q + row * task.stride, DType::kF32, kTileRows, task.layer->head_dim, task.stride);
    pack_rows(q, memory.queries + row / kTileRows * half, kTileBytes);
  }
  std::fill(memory.sums, memory.sums + task.rows * kTileRows, 0.0F);
  for (int64_t row = 0; row < task.rows; ++row) memory.sums[row * kTileRows] = task.sum[row];
  Tiles::configure(full_tiles());
  const int64_t end = std::min(task.last_key, task.end(task.rows - 1));
  int64_t first = 0, last = 0;  // rows that see a page
  for (int64_t base = task.first_key; base < end; base += kTiledKeys) {
    if (!task.has_page(base)) continue;
    pack_page(task, base, memory);
    while (first < task.rows && task.end(first) <= base) first += task.group;
    while (last < task.rows && task.begin(last) < base + kTiledKeys) last += task.group;
    for (int64_t row = first / kTiledRows * kTiledRows; row < last; row += kTiledRows) {
      attend_rows<Tiles>(task, memory, row, base);
    }
  }
  Tiles::release();
  for (int64_t row = 0; row < task.rows; ++row) {
    const float* sums = memory.sums + row * kTileRows;
    task.sum[row] = std::accumulate(sums, sums + kTileRows, 0.0F);
  }
}

extern void (*attention_amx)(const AttentionTask& task);  // requires has_amx_bf16(); replaced like gemm_amx
void attention_pairs(const AttentionTask& task);          // on PairVectors; requires has_avx512_bf16()

}  // namespace lariat::cpu
