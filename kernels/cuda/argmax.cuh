#pragma once
#include "kernels/cuda/device.h"

// The largest logit of each row, as argmax and the draws of sample.cu need it.
namespace lariat::cuda {

inline constexpr int32_t kNobody = INT32_MAX;  // the index of a candidate that nobody has met

// The larger of two logits, the one in front when they are equal. NaN loses every comparison.
struct Candidate {
  float value;
  int32_t index;

  __device__ void meet(float other_value, int32_t other_index) {
    if (other_value > value || (other_value == value && other_index < index)) {
      value = other_value;
      index = other_index;
    }
  }
};

__device__ __forceinline__ Candidate nobody() { return {-INFINITY, kNobody}; }

__device__ __forceinline__ Candidate warp_best(Candidate best) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const float value = __shfl_xor_sync(kFullWarp, best.value, lanes);
    const int32_t index = __shfl_xor_sync(kFullWarp, best.index, lanes);
    best.meet(value, index);
  }
  return best;
}

// The largest of block x's row, or nobody of a row of NaN; by every warp for itself. chunks: of all rows.
__device__ __forceinline__ Candidate row_best(const Candidate* chunks, int64_t n_chunks) {
  const Candidate* row = chunks + blockIdx.x * n_chunks;
  Candidate best = nobody();
  for (int64_t i = lane_index(); i < n_chunks; i += kWarpSize) best.meet(row[i].value, row[i].index);
  return warp_best(best);
}

int64_t argmax_chunks_per_row(const Matrix& logits);
// The largest of every chunk, -> [rows][argmax_chunks_per_row]. Beside it, zeros to `cleared`: words_per_row
// words of each row, or none where it is null.
void launch_argmax_chunks(const Matrix& logits, Candidate* chunks, Stream stream, uint64_t* cleared = nullptr,
                          int64_t words_per_row = 0);

}  // namespace lariat::cuda
