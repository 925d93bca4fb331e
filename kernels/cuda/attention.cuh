#pragma once
#include "kernels/backend.h"
#include "kernels/cuda/dispatch.h"

// What the attention kernels share. Scores are kept in units of log2: q is scaled by scale * log2(e), and
// exp2 takes the place of exp.
//
// Rows: the query heads that read the same KV head are packed with the tokens into one matrix of rows, so
// that a tile of 16 rows reads a key once for all of them (GQA packing):
//   row r of KV head h: token r / group, query head h * group + r % group,  group = n_heads / n_kv_heads
// Splits: the keys of a row tile can be shared out over several blocks. Each then leaves a partial result,
//   state[(split * n_tokens + token) * n_heads + head] = (running maximum m, sum l)
//   partial[the same][d] = sum of exp2(score - m) v[d]
// and merge_kernel (attention_decode.cu) puts them together.
namespace lariat::cuda {

struct Attention {
  const float* q;
  int64_t q_stride;
  const float *cos, *sin;
  int64_t cos_stride, sin_stride;
  int rotary_dim;
  bool interleaved;
  float scale;          // of dimensions that are not rotated
  float rotated_scale;  // of those that are: scale * q_scale
  void* const* k_blocks;
  void* const* v_blocks;
  DType k_dtype, v_dtype;
  int n_heads, n_kv_heads, head_dim;
  FirstPosition first_position;
  int64_t n_tokens, window;
  int64_t planned_length;  // of the sequence with the new tokens, or a bound above it: what launches plan for
  float* out;
  int64_t out_stride;
  int splits;
  float* partial;
  float2* state;

  __host__ __device__ int group() const { return n_heads / n_kv_heads; }
  __host__ __device__ int64_t rows() const { return n_tokens * group(); }
  // How many keys at most are read for all tokens together, as far as is known when the launch is queued.
  int64_t planned_keys() const {
    return window > 0 && planned_length > window + n_tokens - 1 ? window + n_tokens - 1 : planned_length;
  }
  // The keys that position p sees are [first_key(p), p].
  __host__ __device__ int64_t first_key(int64_t p) const {
    return window > 0 && p >= window ? p - window + 1 : 0;
  }
};

// Dimensions (first, second) of a pair.
__device__ __forceinline__ int2 pair_dims(const Attention& a, int pair) {
  if (a.interleaved) return {2 * pair, 2 * pair + 1};
  return {pair, pair + a.rotary_dim / 2};
}

// Those two of the token's rotated and scaled q (one head's row at `q`).
__device__ __forceinline__ float2 rotated_pair(const Attention& a, const float* q, int64_t token, int pair) {
  const int2 d = pair_dims(a, pair);
  const float c = a.cos[token * a.cos_stride + pair] * a.rotated_scale;
  const float s = a.sin[token * a.sin_stride + pair] * a.rotated_scale;
  return {q[d.x] * c - q[d.y] * s, q[d.x] * s + q[d.y] * c};
}

__device__ __forceinline__ int64_t state_index(const Attention& a, int split, int64_t token, int head) {
  return (split * a.n_tokens + token) * a.n_heads + head;
}

// How many blocks share the keys of one row tile: enough for two blocks on every multiprocessor, as long as
// each has `min_tiles` key tiles to work on.
int attention_splits(int64_t blocks, int64_t key_tiles, int64_t min_tiles, int multiprocessors);

// Each fills one grid and queues it; the first two need head_dim <= 256, a multiple of 8, and 16-bit K and V.
bool tensor_cores_support(DType k_dtype, DType v_dtype, int64_t head_dim);
void launch_attention_prefill(Attention a, Stream stream);
void launch_attention_decode(Attention a, Stream stream);
void launch_attention_plain(Attention a, Stream stream);
void launch_attention_merge(const Attention& a, Stream stream);

// The launch of each kind, before its scratch memory is known: the number of splits.
int prefill_splits(const Attention& a, int multiprocessors);
int decode_splits(const Attention& a, int multiprocessors);
int plain_splits(const Attention& a, int multiprocessors);

}  // namespace lariat::cuda
