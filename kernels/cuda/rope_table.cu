#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using namespace cuda;

// One thread per (token, pair). Bound by double arithmetic; a table serves every layer of a step.
__global__ void rope_table_kernel(const __grid_constant__ PairFrequencies inv_freq, int64_t pairs,
                                  int64_t first_position, int64_t n_tokens, float* cos_table,
                                  int64_t cos_stride, float* sin_table, int64_t sin_stride) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t token = i / pairs, pair = i % pairs;
  if (token >= n_tokens) return;
  double sine = 0.0, cosine = 0.0;
  sincos(static_cast<double>(first_position + token) * inv_freq.value[pair], &sine, &cosine);
  cos_table[token * cos_stride + pair] = static_cast<float>(cosine);
  sin_table[token * sin_stride + pair] = static_cast<float>(sine);
}

}  // namespace

void CudaBackend::rope_table(int64_t first_position, std::span<const double> inv_freq,
                             const RopeTable& table) {
  constexpr unsigned kThreads = 128;
  const auto pairs = static_cast<int64_t>(inv_freq.size());
  launch(rope_table_kernel, dim3(to_unsigned(ceil_div<int64_t>(table.cos.rows * pairs, kThreads))),
         dim3(kThreads), 0, stream_, pair_frequencies(inv_freq), pairs, first_position, table.cos.rows,
         typed<float>(table.cos), table.cos.stride, typed<float>(table.sin), table.sin.stride);
}

}  // namespace lariat
