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

// The expert of this block. Grid: y = the rows of out, or, where there are fewer of them, the experts.
__device__ __forceinline__ int32_t expert_of_block(const Grouped& p) {
  return p.by_row ? p.chosen[blockIdx.y] : p.first + static_cast<int32_t>(blockIdx.y);
}

// Those of kWindow rows from `window` on that chose the expert, to ids, by a block of kThreads; found: shared
// memory for two numbers. How many; -1 where the block of an earlier row multiplies by this expert.
template <int kThreads>
__device__ __forceinline__ int find_rows(const Grouped& p, int32_t expert, int64_t window, int32_t* ids,
                                         int* found) {
  if (threadIdx.x == 0) found[0] = found[1] = 0;
  __syncthreads();
  const int64_t end = window + kWindow < p.rows ? window + kWindow : p.rows;
  for (int64_t i = window + threadIdx.x; i < end; i += kThreads) {
    if (p.chosen[i] != expert) continue;
    ids[atomicAdd(&found[0], 1)] = static_cast<int32_t>(i);
    if (p.by_row && i < int64_t{blockIdx.y}) atomicMax(&found[1], 1);
  }
  __syncthreads();
  return found[1] != 0 ? -1 : found[0];
}

// Output o of row `id`, which is of this expert.
__device__ __forceinline__ void store_grouped(const Grouped& p, int32_t expert, int32_t id, int64_t o,
                                              float sum) {
  const float bias = p.biases == nullptr ? 0.0F : p.biases[expert * p.biases_stride + o];
  p.out[id * p.out_stride + o] = sum + bias;
}

}  // namespace lariat::cuda
