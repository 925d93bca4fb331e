#pragma once
#include "kernels/cuda/device.h"

// Products of rows with the matrix that each row chose (Backend::grouped_linear). The routing stays in device
// memory, so that a recorded step serves every token.
namespace lariat::cuda {

inline constexpr int kPointers = 256;  // per launch: 2 KiB of the 4 KiB of arguments
inline constexpr int kWindow = 1024;   // rows of the routing searched at a time

using Experts = ByValue<const void*, kPointers>;

struct Grouped {
  const int32_t* chosen;  // [rows]
  const float* biases;    // [experts][n], or null
  float* out;
  int64_t out_stride, biases_stride, rows, n;
  int per_x;         // rows of out per row of x
  int first, count;  // experts of this launch
  bool by_row;       // blockIdx.y is a row; otherwise an expert
};

// Grid: y = rows of out or, if fewer, experts.
__device__ __forceinline__ int32_t expert_of_block(const Grouped& p) {
  return p.by_row ? p.chosen[blockIdx.y] : p.first + static_cast<int32_t>(blockIdx.y);
}

// Writes the rows from `window` on (kWindow at most) with this expert to ids and returns their number; -1 if
// an earlier row's block handles the expert. found: two numbers in shared memory.
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

__device__ __forceinline__ void store_grouped(const Grouped& p, int32_t expert, int32_t id, int64_t o,
                                              float sum) {
  const float bias = p.biases == nullptr ? 0.0F : p.biases[expert * p.biases_stride + o];
  p.out[id * p.out_stride + o] = sum + bias;
}

}  // namespace lariat::cuda
