#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 512;
constexpr int kRowsPerLaunch = 256;
using Targets = ByValue<int32_t, kRowsPerLaunch>;

// Grid: one block of 512 threads per row. Exponentials are exact to f32 and added in double. Bound by memory:
// the second pass reads L2.
__global__ void token_nll_kernel(const float* logits, int64_t stride, int64_t cols,
                                 const __grid_constant__ Targets targets, double* nll) {
  LARIAT_SHARED(float, maxima, kWarpSize);
  LARIAT_SHARED(double, sums, kWarpSize);
  const float* row = logits + blockIdx.x * stride;
  float top = -INFINITY;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) top = fmaxf(top, row[i]);
  top = block_max(top, maxima);
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) sum += static_cast<double>(expf(row[i] - top));
  sum = block_sum(sum, sums);
  if (threadIdx.x != 0) return;
  const double target = static_cast<double>(row[targets.value[blockIdx.x]]);
  nll[blockIdx.x] = log(sum) + static_cast<double>(top) - target;
}

}  // namespace

void CudaBackend::token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) {
  const auto rows = static_cast<size_t>(logits.rows);
  auto* result = static_cast<double*>(scratch(Scratch::kResult, rows * sizeof(double)));
  for (size_t first = 0; first < rows; first += kRowsPerLaunch) {
    const size_t count = std::min<size_t>(kRowsPerLaunch, rows - first);
    const float* from = typed<float>(logits) + static_cast<int64_t>(first) * logits.stride;
    launch(token_nll_kernel, dim3(static_cast<unsigned>(count)), dim3(kThreads), 0, stream(), from,
           logits.stride, logits.cols, by_value<int32_t, kRowsPerLaunch>(targets, first, count),
           result + first);
  }
  copy_out(nll.data(), result, rows * sizeof(double));
}

}  // namespace lariat
