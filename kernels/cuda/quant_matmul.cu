#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/quant_gemv.cuh"
#include "kernels/quant.h"

// Products with quantised weights (formulas and layout: kernels/quant.h). For a few tokens x is quantised and
// the sums of a group are exact integers, as on the CPU. For many, panels of w become bf16 for cuBLAS, and x
// is rounded to bf16 instead of to 8 bits: its error is of the same size, and rows differ by it from what
// decoding gives.
namespace lariat {
namespace {

using namespace cuda;

constexpr int kWarps = kQuantGemvWarps;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kOutputs = 4;  // of a tile that a lane sums: 16 bytes of 4 inputs each
constexpr int kAhead = 4;    // blocks of a tile whose weights are on their way at once
constexpr int64_t kPanelElements = int64_t{16} << 20;

// sum + the products of four pairs of signed bytes.
__device__ __forceinline__ int dot4(uint32_t a, uint32_t b, int sum) {
#ifdef __CUDACC__
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
#else
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return sum;
#endif
}

// Each group of x to 8 bits. Grid: rows by chunks of 8 groups; a warp per group. Bound by latency.
__global__ void quantize_inputs_kernel(const float* x, int64_t stride, int64_t cols, int64_t groups,
                                       int8_t* values, float* scales) {
  start_in_turn();
  const int64_t row = blockIdx.x, group = int64_t{blockIdx.y} * kWarps + warp_index();
  if (group >= groups) return;
  const int64_t i = group * kQuantGroup + lane_index();
  const float value = i < cols ? x[row * stride + i] : 0.0F;
  const bool finite = fabsf(value) < INFINITY;
  const bool any_not_finite = warp_max(finite ? 0.0F : 1.0F) > 0.0F;
  const float largest = warp_max(finite ? fabsf(value) : 0.0F);
  const bool zero = any_not_finite || largest < kQuantSmallest;
  const float inverse = zero ? 0.0F : 127.0F / largest;
  values[(row * groups + group) * kQuantGroup + lane_index()] =
      zero ? int8_t{0} : static_cast<int8_t>(nearbyintf(value * inverse));
  if (lane_index() == 0) scales[row * groups + group] = any_not_finite ? NAN : zero ? 0.0F : largest / 127.0F;
}

// A lane's part of a block of a tile: 16 bytes of weights of each group (q4: 16 bytes hold both groups' share
// of a lane's half of the warp), the scales of its four outputs.
template <bool kFourBits>
struct Part {
  static constexpr int kLoads = kFourBits ? 1 : 2;
  uint4 weights[kLoads];
  uint64_t scales[kLoads];  // four bf16

  __device__ __forceinline__ void load(const unsigned char* block) {
    const int lane = lane_index(), output = lane % 4 * kOutputs;
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int group = kFourBits ? lane / 16 : l;
      weights[l] = load16_streaming(block + 64 + l * 512 + lane * 16);
      scales[l] = *reinterpret_cast<const uint64_t*>(block + (group * kQuantRows + output) * 2);
    }
  }

  // sum[t][j] += the part's products with token t's inputs of the same block.
  template <int kTokens>
  __device__ __forceinline__ void multiply(const QuantGemv& g, int64_t block,
                                           float (&sum)[kTokens][kOutputs]) const {
    const int lane = lane_index();
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int group = kFourBits ? lane / 16 : l, quad = kFourBits ? lane % 16 / 4 : lane / 4;
      const uint32_t words[4] = {weights[l].x, weights[l].y, weights[l].z, weights[l].w};
      float scale[kOutputs];
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        scale[j] = to_float(BFloat16{static_cast<uint16_t>(scales[l] >> (16 * j))});
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int64_t at = ((t < g.tokens ? t : g.tokens - 1) * g.blocks + block) * 2 + group;
        const auto* x = reinterpret_cast<const uint32_t*>(g.x + at * kQuantGroup);
        const float x_scale = g.x_scale[at];
        const uint32_t low = x[quad], high = kFourBits ? x[quad + 4] : 0;
        const int offset = kFourBits ? -dot4(0x08080808U, low, dot4(0x08080808U, high, 0)) : 0;
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          int s;
          if constexpr (kFourBits) {
            s = dot4(words[j] & 0x0f0f0f0fU, low, dot4(words[j] >> 4 & 0x0f0f0f0fU, high, offset));
          } else {
            s = dot4(words[j] ^ 0x80808080U, low, 0);  // less 128: from unsigned to signed
          }
          sum[t][j] += static_cast<float>(s) * (scale[j] * x_scale);
        }
      }
    }
  }
};

// Grid: a tile of 16 outputs of one of up to three products per block; its warps take the tile's blocks in
// turn. Bound by memory.
template <bool kFourBits, int kTokens>
__global__ void quant_gemv_kernel(const __grid_constant__ QuantGemv g) {
  LARIAT_SHARED(float, partial, kWarps* kTokens* kQuantRows);
  const QuantProduct& p = g.product[product_of_block(g)];
  const int64_t tile_index = blockIdx.x - p.first_block;
  const unsigned char* tile = p.w + tile_index * g.tile_bytes;
  launch_dependents();
  prefetch_tile(tile, g.tile_bytes);
  wait_for_launches();
  float sum[kTokens][kOutputs] = {};
  for_blocks_of_warp<Part<kFourBits>, kAhead>(
      g, tile, [&](const Part<kFourBits>& part, int64_t block) { part.multiply(g, block, sum); });
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      float total = sum[t][j];  // lanes whose numbers are equal modulo 4 have the same outputs
      for (int lanes = 4; lanes < kWarpSize; lanes *= 2) total += __shfl_xor_sync(kFullWarp, total, lanes);
      const int output = lane_index() * kOutputs + j;
      if (lane_index() < 4) partial[(warp_index() * kTokens + t) * kQuantRows + output] = total;
    }
  }
  store_tile<kTokens>(g, p, tile_index, partial);
}

// Tiles as bf16 rows. Grid: tiles by their blocks; 256 threads, four inputs of a row each. Bound by memory.
template <bool kFourBits>
__global__ void dequantize_kernel(const unsigned char* w, int64_t tile_bytes, int64_t block_bytes,
                                  int64_t rows, int64_t cols, BFloat16* out) {
  start_in_turn();
  const int output = static_cast<int>(threadIdx.x) / 16, first = static_cast<int>(threadIdx.x) % 16 * 4;
  const int64_t row = blockIdx.x * kQuantRows + output, col = blockIdx.y * kQuantBlock + first;
  if (row >= rows) return;
  const unsigned char* block = w + blockIdx.x * tile_bytes + blockIdx.y * block_bytes;
  const int group = first / 32, in_group = first % 32, quad = in_group % (kFourBits ? 16 : 32) / 4;
  const auto scale_bits = reinterpret_cast<const uint16_t*>(block)[group * kQuantRows + output];
  const float scale = bits_to_float(uint32_t{scale_bits} << 16);
  const uint32_t word = *reinterpret_cast<const uint32_t*>(block + 64 + group * (kFourBits ? 256 : 512) +
                                                           (quad * kQuantRows + output) * 4);
  for (int i = 0; i < 4 && col + i < cols; ++i) {
    int q = static_cast<int>(word >> (8 * i) & 0xffU) - 128;
    if constexpr (kFourBits) q = static_cast<int>(word >> (8 * i + (in_group >= 16 ? 4 : 0)) & 0xfU) - 8;
    out[row * cols + col + i] = from_float<BFloat16>(scale * static_cast<float>(q));
  }
}

template <bool kFourBits>
void launch_quant_gemv(const QuantGemv& g, unsigned tiles, LaunchQueue& queue) {
  constexpr int kFew = 4;
  if (g.tokens > kFew) return quant_gemv_mma(g, kFourBits, tiles, queue);
  const auto kernel = g.tokens == 1 ? quant_gemv_kernel<kFourBits, 1> : quant_gemv_kernel<kFourBits, kFew>;
  launch(kernel, dim3(tiles), dim3(kThreads), 0, queue, g);
}

}  // namespace

bool CudaBackend::quant_gemv(const Matrix& x, std::span<const Product> products) {
  const Matrix& model = products[0].w;
  const bool same = std::all_of(products.begin(), products.end(),
                                [&](const Product& product) { return product.w.dtype == model.dtype; });
  if (!same || !is_quantized(model.dtype) || x.rows > kMmaTokens || products.size() > kMostProducts) {
    return false;
  }
  const QuantLayout layout(model);
  const int64_t groups = layout.blocks() * (kQuantBlock / kQuantGroup);
  const auto values = static_cast<size_t>(x.rows * groups * kQuantGroup);
  auto* memory = static_cast<int8_t*>(
      scratch(Scratch::kGemmX, values + static_cast<size_t>(x.rows * groups) * sizeof(float)));
  auto* scales = reinterpret_cast<float*>(memory + values);
  launch(quantize_inputs_kernel, dim3(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(groups, kWarps))),
         dim3(kThreads), 0, queue_, typed<const float>(x), x.stride, x.cols, groups, memory, scales);
  QuantGemv g = zeroed<QuantGemv>();
  unsigned tiles = 0;
  for (size_t i = 0; i < kMostProducts; ++i) {
    QuantProduct& p = g.product[i];
    p.first_block = i < products.size() ? tiles : ~0U;
    if (i >= products.size()) continue;
    const auto& [w, bias, out] = products[i];
    p.w = typed<const unsigned char>(w);
    p.bias = bias.data;
    p.bias_dtype = bias.dtype;
    p.out = typed<float>(out);
    p.out_stride = out.stride;
    p.rows = w.rows;
    tiles += to_unsigned(QuantLayout(w).tiles());
  }
  g.x = memory;
  g.x_scale = scales;
  g.blocks = layout.blocks();
  g.tile_bytes = layout.tile_bytes();
  g.block_bytes = layout.block_bytes();
  g.tokens = static_cast<int>(x.rows);
  model.dtype == DType::kQ4 ? launch_quant_gemv<true>(g, tiles, queue_)
                            : launch_quant_gemv<false>(g, tiles, queue_);
  return true;
}

void CudaBackend::quant_gemm(const Matrix& x, const Matrix& w, const Matrix& out,
                             const cuda::Scales& scales) {
  const QuantLayout layout(w);
  const int64_t panel = std::clamp<int64_t>(kPanelElements / (w.cols * kQuantRows), 1, layout.tiles());
  void* panel_data = scratch(Scratch::kGemmW, static_cast<size_t>(panel * kQuantRows * w.cols) * 2);
  for (int64_t tile = 0; tile < layout.tiles(); tile += panel) {
    const int64_t tiles = std::min(panel, layout.tiles() - tile), first = tile * kQuantRows;
    const int64_t rows = std::min(tiles * kQuantRows, w.rows - first);
    const auto kernel = w.dtype == DType::kQ4 ? dequantize_kernel<true> : dequantize_kernel<false>;
    launch(kernel, dim3(to_unsigned(tiles), to_unsigned(layout.blocks())), dim3(kThreads), 0, queue_,
           typed<const unsigned char>(w) + tile * layout.tile_bytes(), layout.tile_bytes(),
           layout.block_bytes(), rows, w.cols, static_cast<BFloat16*>(panel_data));
    cuda::gemm(blas(), x, Matrix(panel_data, DType::kBF16, rows, w.cols),
               Matrix(typed<float>(out) + first, DType::kF32, out.rows, rows, out.stride), scales);
  }
}

}  // namespace lariat
