#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr int kTokensPerLaunch = 256;
using Tokens = ByValue<int32_t, kTokensPerLaunch>;

// Grid: one block per token; 256 threads stride over its row. Bound by memory (one row read, one written).
// drawn: what read_drawn gives, for the tokens that are drawn_token(of a row).
template <class T>
__global__ void embed_kernel(const __grid_constant__ Tokens tokens, const int32_t* drawn, const T* table,
                             int64_t table_stride, float scale, float* out, int64_t out_stride,
                             int64_t cols) {
  int32_t token = tokens.value[blockIdx.x];
  if (token < 0) {
    token = drawn[-1 - token];
    if (token < 0) token = -1 - token;  // token_of
  }
  const T* row = table + token * table_stride;
  float* to = out + blockIdx.x * out_stride;
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) to[i] = scale * to_float(row[i]);
}

}  // namespace

void CudaBackend::embed(std::span<const int32_t> tokens, const Matrix& table, float scale,
                        const Matrix& out) {
  for (size_t first = 0; first < tokens.size(); first += kTokensPerLaunch) {
    const size_t count = std::min<size_t>(kTokensPerLaunch, tokens.size() - first);
    float* to = typed<float>(out) + static_cast<int64_t>(first) * out.stride;
    with_dtype(table.dtype, [&]<class T>(T) {
      launch(embed_kernel<T>, dim3(static_cast<unsigned>(count)), dim3(256), 0, stream(),
             by_value<int32_t, kTokensPerLaunch>(tokens, first, count),
             static_cast<const int32_t*>(drawn_.data()), typed<T>(table), table.stride, scale, to, out.stride,
             table.cols);
    });
  }
}

}  // namespace lariat
