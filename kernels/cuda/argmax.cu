#include <climits>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

namespace lariat {
namespace {

using namespace cuda;

// The larger of two candidates, the one in front when they are equal. NaN loses every comparison.
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

__device__ __forceinline__ Candidate nobody() { return {-INFINITY, INT32_MAX}; }

__device__ __forceinline__ Candidate warp_best(Candidate best) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const float value = __shfl_xor_sync(kFullWarp, best.value, lanes);
    const int32_t index = __shfl_xor_sync(kFullWarp, best.index, lanes);
    best.meet(value, index);
  }
  return best;
}

constexpr unsigned kThreads = 256;
constexpr int64_t kColumnsPerBlock = 8192;

// Grid: rows by chunks of 8192 columns, so that one row of a large vocabulary keeps many multiprocessors
// busy. 256 threads; bound by memory. Writes one candidate per chunk.
__global__ void argmax_chunk_kernel(const float* logits, int64_t stride, int64_t cols, Candidate* chunks) {
  LARIAT_SHARED(Candidate, warps, kThreads / kWarpSize);
  const float* row = logits + blockIdx.x * stride;
  const int64_t first = blockIdx.y * kColumnsPerBlock;
  const int64_t end = first + kColumnsPerBlock < cols ? first + kColumnsPerBlock : cols;
  Candidate best = nobody();
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) best.meet(row[i], static_cast<int32_t>(i));
  best = warp_best(best);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (lane == 0) warps[warp] = best;
  __syncthreads();
  if (warp != 0) return;
  best = lane < static_cast<int>(kThreads) / kWarpSize ? warps[lane] : nobody();
  best = warp_best(best);
  if (lane == 0) chunks[int64_t{blockIdx.x} * gridDim.y + blockIdx.y] = best;
}

// Grid: one warp per row meets the row's chunks. A row of NaN has no winner and gives 0.
__global__ void argmax_row_kernel(const Candidate* chunks, int64_t n_chunks, int32_t* ids) {
  const Candidate* row = chunks + blockIdx.x * n_chunks;
  Candidate best = nobody();
  for (int64_t i = threadIdx.x; i < n_chunks; i += kWarpSize) best.meet(row[i].value, row[i].index);
  best = warp_best(best);
  if (threadIdx.x == 0) ids[blockIdx.x] = best.index == INT32_MAX ? 0 : best.index;
}

}  // namespace

void CudaBackend::argmax(const Matrix& logits, std::span<int32_t> ids) {
  const int64_t n_chunks = div_up(logits.cols, kColumnsPerBlock);
  const auto rows = static_cast<size_t>(logits.rows);
  const size_t chunk_bytes = rows * static_cast<size_t>(n_chunks) * sizeof(Candidate);
  auto* chunks = static_cast<Candidate*>(scratch(Scratch::kResult, chunk_bytes + rows * sizeof(int32_t)));
  auto* device_ids = reinterpret_cast<int32_t*>(chunks + rows * static_cast<size_t>(n_chunks));
  launch(argmax_chunk_kernel, dim3(to_unsigned(logits.rows), to_unsigned(n_chunks)), dim3(kThreads), 0,
         stream_, typed<float>(logits), logits.stride, logits.cols, chunks);
  launch(argmax_row_kernel, dim3(to_unsigned(logits.rows)), dim3(kWarpSize), 0, stream_, chunks, n_chunks,
         device_ids);
  copy_out(ids.data(), device_ids, rows * sizeof(int32_t));
}

}  // namespace lariat
