#pragma once
#include "kernels/backend.h"
#include "kernels/integers.h"

namespace lariat {

// Positions per attention block; divides kKvPage.
inline constexpr int64_t kAttentionKeys = 64;

// One thread's share: query rows of one KV head over positions of one KeyRange. Row r is query head kv_head *
// group + r % group of token r / group. The result is the state of the online softmax for scores s,
//   max[r], sum[r] = sum_j exp(s[r][j] - max[r]), acc[r] = sum_j exp(s[r][j] - max[r]) V[j],
// so that the next range continues it and shares can be merged.
struct AttentionTask {
  const KvLayer* layer = nullptr;
  void* const* pages = nullptr;
  int64_t kv_head = 0;
  int64_t group = 1;           // query heads per KV head
  int64_t rows = 0;            // tokens * group
  int64_t first_position = 0;  // of row 0
  float softcap = 0.0F;
  const float* slopes = nullptr;  // ALiBi: one per query head of the group; null: none
  KeyEdge first_seen, last_seen;
  int64_t first_key = 0, last_key = 0;  // first_key is a multiple of kAttentionKeys
  float* q = nullptr;                   // [rows][stride], rotated and scaled, zeros from head_dim on
  float* max = nullptr;                 // [rows]
  float* sum = nullptr;                 // [rows]
  float* acc = nullptr;                 // [rows][stride]
  int64_t stride = 0;                   // head_dim rounded up to padded_head_dim()
  int64_t value_stride = 0;             // likewise for the used numbers of V[j]
  float* scratch = nullptr;             // private to the task's thread

  bool has_page(int64_t key) const { return pages[key / kKvPage] != nullptr; }
  int64_t position(int64_t row) const { return first_position + row / group; }
  // Positions that a row may see.
  int64_t begin(int64_t row) const { return first_seen.at(position(row)); }
  int64_t end(int64_t row) const { return last_seen.at(position(row)); }
};

// Rows of q and acc start at multiples of the longest vector.
constexpr int64_t padded_head_dim(int64_t head_dim) { return round_up<int64_t>(head_dim, 16); }

// Query rows per tile (kAttentionStreamTile: at most). q, max, sum and acc are padded to a multiple.
inline constexpr int64_t kAttentionBlockTile = 6, kAttentionStreamTile = 8;

constexpr int64_t attention_scratch(int64_t stride) { return 2 * kAttentionKeys * stride; }

// For a decode step: streams the cache in its storage type.
void attention_stream(const AttentionTask& task);

// For a prefill: widens kAttentionKeys positions and multiplies all rows by them.
void attention_block(const AttentionTask& task);

}  // namespace lariat
