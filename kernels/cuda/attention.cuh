#pragma once
#include "kernels/cuda/output.cuh"

// Scores are in log2 units: q is scaled by scale * log2(e), and exp2 replaces exp.
//
// Packed rows (GQA packing): the query heads of a KV head and a sequence's tokens form one matrix, so that a
// tile of 16 rows reads each key once:
//   packed row r of KV head h: the sequence's token r / group, query head h * group + r % group,
//   group = n_heads / n_kv_heads
// Splits: several blocks can share the keys of a tile; each range has its own blocks. Each block writes a
// partial result,
//   state[(split * n_rows + row) * n_heads + head] = (base m, about the maximum, and sum l)
//   partial[the same][d] = sum of exp2(score - m) v[d]
// For small tiles, as in decode, the tile's last block merges the results (attention_merge.cuh). 64 rows of
// up to 64 results are too many for one block, so that merge_kernel (attention.cu) has a block per row.
namespace lariat::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;

struct AttentionRange {
  KeyEdge begin, end;
  int64_t k_offset;                                  // in a page
  const float *cos, *sin, *q_scale, *whole_q_scale;  // whole_q_scale may be null
  int64_t cos_stride, sin_stride, q_scale_stride, whole_q_scale_stride;

  __device__ float whole(int64_t row) const {
    return whole_q_scale == nullptr ? 1.0F : whole_q_scale[row * whole_q_scale_stride];
  }
};

struct Attention {
  const float* q;
  void* out;  // f32 or bf16
  int64_t q_stride, out_stride;
  AttentionRange ranges[Backend::kMaxRanges];
  DeviceStep step;
  int64_t v_offset;  // in a page
  int64_t n_rows;
  float* partial;
  float2* state;
  unsigned* finished;     // [grid.x]: finished blocks of a tile; null: merge_kernel merges
  const float* slopes;    // ALiBi: one per head, in units of e; or null
  const float* sinks;     // likewise
  const float* q_weight;  // [head_dim], or null
  int n_heads, n_kv_heads, head_dim, rotary_dim;
  int splits, shares;            // of all ranges, and of one range
  int value_dim;                 // used numbers of each value
  float scale;                   // of unrotated dimensions; rotated ones also have q_scale
  float softcap, softcap_slope;  // in score units, and 2 log2(e) / softcap; 0: none
  DType k_dtype, v_dtype, out_dtype;
  bool interleaved;

  __host__ __device__ int group() const { return n_heads / n_kv_heads; }
  __device__ float weight(int d) const { return q_weight == nullptr ? 1.0F : q_weight[d]; }
};

// A block's share of the keys of a range.
struct Share {
  const AttentionRange& range;
  int index, split;

  // Grid: y = shares, z = ranges.
  __device__ explicit Share(const Attention& a)
      : range(a.ranges[blockIdx.z]),
        index(static_cast<int>(blockIdx.y)),
        split(static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y)) {}
  // Initial maximum, in log2 units: the head's sink, in one of the blocks.
  __device__ float start(const Attention& a, int head) const {
    return a.sinks == nullptr || split > 0 ? -INFINITY : a.sinks[head] * kLog2E;
  }
};

// Upper bounds for all sequences of the step.
struct AttentionPlan {
  int64_t sequences;
  int64_t tokens;  // new tokens of a sequence
  int64_t keys;    // read by these tokens together, per range
  int multiprocessors;
};

struct PackedRows {
  int64_t first_token_row;  // of the sequence, in q and out
  int first_position;       // of the sequence's new tokens
  unsigned first, count;    // first packed row of the tile; packed rows of the sequence
  unsigned group;
  int kv_head;

  __device__ bool has(int row) const { return first + static_cast<unsigned>(row) < count; }
  __device__ unsigned token(int row) const { return (first + static_cast<unsigned>(row)) / group; }
  __device__ int64_t token_row(int row) const { return first_token_row + token(row); }
  __device__ int position(int row) const { return first_position + static_cast<int>(token(row)); }
  __device__ int head(int row) const {
    return static_cast<int>(static_cast<unsigned>(kv_head) * group +
                            (first + static_cast<unsigned>(row)) % group);
  }
};

__device__ __forceinline__ int2 pair_dims(const Attention& a, int pair) {
  if (a.interleaved) return {2 * pair, 2 * pair + 1};
  return {pair, pair + a.rotary_dim / 2};
}

__device__ __forceinline__ float2 rotated_pair(const Attention& a, const AttentionRange& range,
                                               const float* q, int64_t row, int pair) {
  const int2 d = pair_dims(a, pair);
  const float scale = a.scale * range.whole(row) * range.q_scale[row * range.q_scale_stride];
  const float c = range.cos[row * range.cos_stride + pair] * scale;
  const float s = range.sin[row * range.sin_stride + pair] * scale;
  return {(q[d.x] * c - q[d.y] * s) * a.weight(d.x), (q[d.x] * s + q[d.y] * c) * a.weight(d.y)};
}

__device__ __forceinline__ int64_t state_index(const Attention& a, int split, int64_t row, int head) {
  return (split * a.n_rows + row) * a.n_heads + head;
}

// Start of a row's head in out; `bytes`: size of an element.
__device__ __forceinline__ char* head_of_out(const Attention& a, int64_t row, int head, int bytes) {
  return static_cast<char*>(a.out) + (row * a.out_stride + int64_t{head} * a.value_dim) * bytes;
}
// 4 numbers require an aligned address.
template <int kWidth, class T>
__device__ __forceinline__ void store_numbers(T* out, const float (&x)[kWidth]) {
  static_assert(kWidth == 1 || kWidth == 4);
  if constexpr (kWidth == 4) {
    store4(out, {x[0], x[1], x[2], x[3]});
  } else {
    *out = from_float<T>(x[0]);
  }
}
template <int kWidth>
__device__ __forceinline__ void store_out(const Attention& a, int64_t row, int head, int d,
                                          const float (&x)[kWidth]) {
  if (a.out_dtype == DType::kBF16) {
    store_numbers(reinterpret_cast<BFloat16*>(head_of_out(a, row, head, sizeof(BFloat16))) + d, x);
  } else {
    store_numbers(reinterpret_cast<float*>(head_of_out(a, row, head, sizeof(float))) + d, x);
  }
}

// softcap * tanh(x / softcap), by tanh(y) = 1 - 2 / (1 + exp(2 y)): error at most softcap * 8 * 2^-24. IEEE
// division would take more registers.
__device__ __forceinline__ float capped_score(const Attention& a, float x) {
  const float divisor = 1.0F + exp2f(x * a.softcap_slope);
#ifdef __CUDACC__
  return a.softcap - __fdividef(2.0F * a.softcap, divisor);
#else
  return a.softcap - 2.0F * a.softcap / divisor;
#endif
}

// At most two blocks per multiprocessor share the keys of a tile, with at least `min_tiles` key tiles each.
inline constexpr int kMaxSplits = 64;
inline dim3 share_grid(const Attention& a, int64_t blocks) {
  const auto shares = static_cast<unsigned>(a.shares);
  return {to_unsigned(blocks), shares, static_cast<unsigned>(a.splits) / shares};
}
int attention_splits(int64_t blocks, int64_t key_tiles, int64_t min_tiles, int multiprocessors);

// Whether a kernel merges its splits, their number, and the launch.
struct AttentionKernel {
  bool merges;
  int (*splits)(const Attention& a, const AttentionPlan& plan);
  void (*launch)(const Attention& a, const AttentionPlan& plan, LaunchQueue& queue);
};
extern const AttentionKernel kAttentionPlain;
// Tensor core kernels: for few packed rows of a sequence, for more, and with 128 rows per block.
extern const AttentionKernel kAttentionDecode, kAttentionShort, kAttentionPrefill;

}  // namespace lariat::cuda
