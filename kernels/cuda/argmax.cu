#include "kernels/cuda/argmax.cuh"

#include <vector>

#include "kernels/cuda/cuda_backend.h"

namespace lariat {
namespace cuda {
namespace {

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

// Grid: one warp per row meets the row's chunks.
__global__ void argmax_row_kernel(const Candidate* chunks, int64_t n_chunks, Candidate* rows) {
  const Candidate* row = chunks + blockIdx.x * n_chunks;
  Candidate best = nobody();
  for (int64_t i = threadIdx.x; i < n_chunks; i += kWarpSize) best.meet(row[i].value, row[i].index);
  best = warp_best(best);
  if (threadIdx.x == 0) rows[blockIdx.x] = best;
}

int64_t chunks_per_row(const Matrix& logits) { return ceil_div(logits.cols, kColumnsPerBlock); }

}  // namespace

size_t argmax_chunks(const Matrix& logits) {
  return static_cast<size_t>(logits.rows * chunks_per_row(logits));
}

void launch_argmax(const Matrix& logits, Candidate* chunks, Candidate* best, Stream stream) {
  const int64_t n_chunks = chunks_per_row(logits);
  launch(argmax_chunk_kernel, dim3(to_unsigned(logits.rows), to_unsigned(n_chunks)), dim3(kThreads), 0,
         stream, typed<float>(logits), logits.stride, logits.cols, chunks);
  launch(argmax_row_kernel, dim3(to_unsigned(logits.rows)), dim3(kWarpSize), 0, stream, chunks, n_chunks,
         best);
}

}  // namespace cuda

void CudaBackend::argmax(const Matrix& logits, std::span<int32_t> ids) {
  using namespace cuda;
  const size_t n_chunks = argmax_chunks(logits);
  std::vector<Candidate> best(static_cast<size_t>(logits.rows));
  auto* chunks =
      static_cast<Candidate*>(scratch(Scratch::kResult, (n_chunks + best.size()) * sizeof(Candidate)));
  launch_argmax(logits, chunks, chunks + n_chunks, stream_);
  copy_out(best.data(), chunks + n_chunks, best.size() * sizeof(Candidate));
  for (size_t i = 0; i < best.size(); ++i) ids[i] = best[i].index == kNobody ? 0 : best[i].index;
}

}  // namespace lariat
