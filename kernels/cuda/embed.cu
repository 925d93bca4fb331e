#include <algorithm>

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr int kTokensPerLaunch = 256;
using Tokens = ByValue<int32_t, kTokensPerLaunch>;

// drawn: results of the last draw.
__device__ __forceinline__ int32_t token_of_block(const Tokens& tokens, const int32_t* drawn) {
  int32_t token = tokens.value[blockIdx.x];
  if (token < 0) {
    token = drawn[-1 - token];
    if (token < 0) token = -1 - token;  // token_of
  }
  return token;
}

// Grid: one block of 256 threads per token.
template <class T>
__global__ void embed_kernel(const __grid_constant__ Tokens tokens, const int32_t* drawn, const T* table,
                             int64_t table_stride, float scale, float* out, int64_t out_stride,
                             int64_t cols) {
  const T* row = table + token_of_block(tokens, drawn) * table_stride;
  float* to = out + blockIdx.x * out_stride;
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) to[i] = scale * to_float(row[i]);
}

__global__ void embed_codes_kernel(const __grid_constant__ Tokens tokens, const int32_t* drawn,
                                   const unsigned char* table, const __grid_constant__ Codes codes,
                                   float scale, float* out, int64_t out_stride, int cols) {
  const int32_t token = token_of_block(tokens, drawn);
  const unsigned char* tile = table + token / kCodeRows * codes.tile_bytes;
  float* to = out + blockIdx.x * out_stride;
  for (int first = static_cast<int>(threadIdx.x) * 4; first < cols;
       first += static_cast<int>(blockDim.x) * 4) {
    float values[4];
    const int number = block_of_chunk(codes, first / kChunk);
    const unsigned char* block = tile + int64_t{number} * codes.block_bytes;
    dequantize4(codes, codes.table, block, token % kCodeRows, first - number * codes.chunks * kChunk, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < cols) to[first + i] = scale * values[i];
    }
  }
}

}  // namespace

void CudaBackend::embed(std::span<const int32_t> tokens, const HostWeight& weight, float scale,
                        const Matrix& out) {
  const Matrix& table = weight.m;
  for (size_t first = 0; first < tokens.size(); first += kTokensPerLaunch) {
    const size_t count = std::min<size_t>(kTokensPerLaunch, tokens.size() - first);
    const dim3 grid(static_cast<unsigned>(count));
    const Tokens some = by_value<int32_t, kTokensPerLaunch>(tokens, first, count);
    const auto* drawn = static_cast<const int32_t*>(drawn_.data());
    float* to = typed<float>(out) + static_cast<int64_t>(first) * out.stride;
    if (is_quantized(table.dtype)) {
      launch(embed_codes_kernel, grid, dim3(256), 0, stream(), some, drawn, typed<const unsigned char>(table),
             codes_of(table), scale, to, out.stride, static_cast<int>(table.cols));
      continue;
    }
    with_dtype(table.dtype, [&]<class T>(T) {
      launch(embed_kernel<T>, grid, dim3(256), 0, stream(), some, drawn, typed<T>(table), table.stride, scale,
             to, out.stride, table.cols);
    });
  }
}

}  // namespace lariat
