#pragma once
#include "kernels/cuda/dispatch.h"

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

// best[t] = the largest of row t, or kNobody of a row of NaN. chunks: argmax_chunks(logits) candidates.
void launch_argmax(const Matrix& logits, Candidate* chunks, Candidate* best, Stream stream);
size_t argmax_chunks(const Matrix& logits);

}  // namespace lariat::cuda
