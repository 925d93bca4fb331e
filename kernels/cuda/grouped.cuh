#pragma once
#include "kernels/cuda/device.h"

// Products of rows with the one of many matrices that each of them chose (Backend::grouped_linear). What the
// routing says stays in device memory: no launch depends on it, so that a recorded step serves every token.
namespace lariat::cuda {

inline constexpr int kPointers = 256;  // experts per launch: 2 KiB of the 4 that its arguments may take
inline constexpr int kWindow = 1024;   // rows of the routing that are looked through at a time

using Experts = ByValue<const void*, kPointers>;

struct Grouped {
  const int32_t* chosen;  // [rows]
  const float* biases;    // [experts][n], or null
  float* out;
  int64_t out_stride, biases_stride, rows, n;
  int per_x;         // rows of out per row of x
  int first, count;  // the experts of this launch
  bool by_row;       // blockIdx.y is a row, whose expert it is; otherwise an expert
};

// multiply(expert, ids, count) for all rows that chose this block's expert, some at a time. Of the rows of
// one expert the first one's block does it. Grid: y = the rows of out, or, where there are fewer of them, the
// experts; 4 KiB of shared memory.
template <class F>
__device__ __forceinline__ void for_rows_of_expert(const Grouped& p, const F& multiply) {
  LARIAT_SHARED(int32_t, ids, kWindow);
  LARIAT_SHARED(int, found, 2);  // how many of them, and whether one stands before this block's row
  const auto slot = static_cast<int64_t>(blockIdx.y);
  const int32_t expert = p.by_row ? p.chosen[slot] : p.first + static_cast<int32_t>(slot);
  if (expert < p.first || expert >= p.first + p.count) return;
  for (int64_t window = 0; window < p.rows; window += kWindow) {
    if (threadIdx.x == 0) found[0] = found[1] = 0;
    __syncthreads();
    const int64_t end = window + kWindow < p.rows ? window + kWindow : p.rows;
    for (int64_t i = window + threadIdx.x; i < end; i += blockDim.x) {
      if (p.chosen[i] != expert) continue;
      ids[atomicAdd(&found[0], 1)] = static_cast<int32_t>(i);
      if (p.by_row && i < slot) atomicMax(&found[1], 1);
    }
    __syncthreads();
    if (found[1] != 0) return;
    multiply(expert, ids, found[0]);
    __syncthreads();
  }
}

// Output o of row `id`, which is of this expert.
__device__ __forceinline__ void store_grouped(const Grouped& p, int32_t expert, int32_t id, int64_t o,
                                              float sum) {
  const float bias = p.biases == nullptr ? 0.0F : p.biases[expert * p.biases_stride + o];
  p.out[id * p.out_stride + o] = sum + bias;
}

}  // namespace lariat::cuda
