#include "kernels/cuda/argmax.cuh"

#include "kernels/cuda/cuda_backend.h"

namespace lariat {
namespace cuda {
namespace {

constexpr unsigned kArgmaxThreads = 256;
constexpr int64_t kColumnsPerBlock = 8192;

// Grid: rows by chunks of 8192 columns, so that one row of a large vocabulary keeps many multiprocessors
// busy. 256 threads; bound by memory. Writes one candidate per chunk.
__global__ void argmax_chunk_kernel(const float* logits, int64_t stride, int64_t cols, Candidate* chunks,
                                    uint64_t* cleared, int64_t words_per_row) {
  LARIAT_SHARED(Candidate, warps, kArgmaxThreads / kWarpSize);
  if (blockIdx.y == 0) {
    for (int64_t i = threadIdx.x; i < words_per_row; i += kArgmaxThreads) {
      cleared[blockIdx.x * words_per_row + i] = 0;
    }
  }
  const float* row = logits + blockIdx.x * stride;
  const int64_t first = blockIdx.y * kColumnsPerBlock;
  const int64_t end = first + kColumnsPerBlock < cols ? first + kColumnsPerBlock : cols;
  Candidate best = nobody();
  for (int64_t i = first + threadIdx.x; i < end; i += kArgmaxThreads)
    best.meet(row[i], static_cast<int32_t>(i));
  best = warp_best(best);
  const int warp = warp_index(), lane = lane_index();
  if (lane == 0) warps[warp] = best;
  __syncthreads();
  if (warp != 0) return;
  best = lane < static_cast<int>(kArgmaxThreads) / kWarpSize ? warps[lane] : nobody();
  best = warp_best(best);
  if (lane == 0) chunks[int64_t{blockIdx.x} * gridDim.y + blockIdx.y] = best;
}

// Grid: one warp per row meets the row's chunks. Writes the index of its largest, or -1 - that where the
// largest is not finite.
__global__ void argmax_row_kernel(const Candidate* chunks, int64_t n_chunks, int32_t* ids) {
  const Candidate best = row_best(chunks, n_chunks);
  const int32_t index = best.index == kNobody ? 0 : best.index;
  if (threadIdx.x == 0) ids[blockIdx.x] = fabsf(best.value) < INFINITY ? index : -1 - index;
}

}  // namespace

int64_t argmax_chunks_per_row(const Matrix& logits) { return ceil_div(logits.cols, kColumnsPerBlock); }

void launch_argmax_chunks(const Matrix& logits, Candidate* chunks, Stream stream, uint64_t* cleared,
                          int64_t words_per_row) {
  launch(argmax_chunk_kernel, dim3(to_unsigned(logits.rows), to_unsigned(argmax_chunks_per_row(logits))),
         dim3(kArgmaxThreads), 0, stream, typed<float>(logits), logits.stride, logits.cols, chunks, cleared,
         words_per_row);
}

}  // namespace cuda

using namespace cuda;

void CudaBackend::take_largest(const Matrix& logits, int32_t* ids) {
  const int64_t n_chunks = argmax_chunks_per_row(logits);
  const auto candidates = static_cast<size_t>(logits.rows * n_chunks);
  auto* chunks = static_cast<Candidate*>(scratch(Scratch::kResult, candidates * sizeof(Candidate)));
  launch_argmax_chunks(logits, chunks, stream());
  launch(argmax_row_kernel, dim3(to_unsigned(logits.rows)), dim3(kWarpSize), 0, stream(), chunks, n_chunks,
         ids);
}

void CudaBackend::argmax(const Matrix& logits, std::span<int32_t> ids) {
  sample_ahead(logits, {}, {}, ids, {});
  for (int32_t& id : ids) id = id < 0 ? -1 - id : id;
}

}  // namespace lariat
