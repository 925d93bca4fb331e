#pragma once
#include "kernels/cuda/attention.cuh"

// Merges the partial results of a tile (attention.cuh).
namespace lariat::cuda {

template <int kRows, int kSums>
struct MergeBoard {
  float sums[kSums];
  float weights[kRows * kMaxSplits];
  unsigned number;
};

// For blocks with one row.
struct OneRow {
  int64_t row;
  int only_head;

  __device__ int64_t token_row(int) const { return row; }
  __device__ int head(int) const { return only_head; }
};

// Whether this block is the last of its tile (same blockIdx.x) to write partial results, and may read all of
// them. `number`: shared memory. Called by the whole block.
//
// The first barrier orders all threads' results before thread 0's fence, which makes them visible to the
// device before the block is counted. The fence after the count orders later reads of the last block. The
// count wraps to 0, so a launch can be replayed.
__device__ __forceinline__ bool is_last_split(const Attention& a, unsigned& number) {
  const auto last = static_cast<unsigned>(a.splits - 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    number = atomicInc(a.finished + blockIdx.x, last);
    __threadfence();
  }
  __syncthreads();
  return number == last;
}

// weights[split] = weight of the row's partial result; [kMaxSplits], zero after the last. By a warp.
__device__ __forceinline__ void weigh_splits(const Attention& a, int64_t row, int head, float* weights) {
  static_assert(kMaxSplits == 2 * kWarpSize);
  const int lane = lane_index();
  float2 state[2];
  for (int i = 0; i < 2; ++i) {
    const int split = lane + i * kWarpSize;
    state[i] = {-INFINITY, 0.0F};
    if (split < a.splits) state[i] = a.state[state_index(a, split, row, head)];
  }
  const float top = warp_max(fmaxf(state[0].x, state[1].x));
  for (float2& s : state) s.x = exp2f(s.x - top);
  const float sum = warp_sum(state[0].x * state[0].y + state[1].x * state[1].y);
  for (int i = 0; i < 2; ++i) weights[lane + i * kWarpSize] = state[i].x / sum;
}

template <int kWidth>
__device__ __forceinline__ void load_columns(const float* from, float (&x)[kWidth]) {
  if constexpr (kWidth == 1) {
    x[0] = *from;
  } else {
    load_x<kWidth>(from, x);
  }
}

// out = weighted sum of the partial results of rows [0, count) of a tile. A thread has kWidth adjacent
// columns (4 if head_dim and value_dim are multiples of 4 and out is aligned); surplus threads share the
// splits. weights: [count][kMaxSplits], sums: kWidth per thread, in shared memory. Called by the whole block.
template <int kWidth, class Rows>
__device__ __forceinline__ void merge_splits(const Attention& a, const Rows& rows, int count, float* weights,
                                             float* sums) {
  static_assert(kWidth == 1 || kWidth == 4);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = warp_index(); i < count; i += threads / kWarpSize) {
    weigh_splits(a, rows.token_row(i), rows.head(i), weights + i * kMaxSplits);
  }
  __syncthreads();
  const int per_row = a.value_dim / kWidth, columns = count * per_row;
  const int shared_by = threads / columns > 1 ? threads / columns : 1;
  const int group = shared_by > 1 ? thread / columns : 0;
  for (int first = 0; first < columns; first += threads) {
    const int column = first + (shared_by > 1 ? thread % columns : thread);
    const bool has = column < columns && group < shared_by;
    const int i = has ? column / per_row : 0, d = has ? column % per_row * kWidth : 0;
    const int64_t row = rows.token_row(i);
    const int head = rows.head(i);
    float x[kWidth] = {};
#pragma unroll 8
    for (int split = group; has && split < a.splits; split += shared_by) {
      float part[kWidth];
      load_columns<kWidth>(a.partial + state_index(a, split, row, head) * a.head_dim + d, part);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[j] += weights[i * kMaxSplits + split] * part[j];
    }
    if (shared_by > 1) {
      for (int j = 0; j < kWidth; ++j) sums[thread * kWidth + j] = x[j];
      __syncthreads();
      for (int other = 1; group == 0 && has && other < shared_by; ++other) {
        for (int j = 0; j < kWidth; ++j) x[j] += sums[(other * columns + column) * kWidth + j];
      }
    }
    if (!has || group != 0) continue;
    store_out(a, row, head, d, x);
  }
}

}  // namespace lariat::cuda
