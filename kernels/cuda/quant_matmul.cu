#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemv.cuh"
#include "kernels/quant.h"

// Products with quantised weights (formulas and layout: kernels/quant.h). For a few tokens x is quantised and
// the sums of a group are exact integers, as on the CPU, unless the codes stand for floats, which meet x as
// it is. For many, panels of w become bf16 for cuBLAS, and x
// is rounded to bf16 instead of to 8 bits: its error is of the same size, and rows differ by it from what
// decoding gives.
namespace lariat {
namespace {

using namespace cuda;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int64_t kPanelElements = int64_t{16} << 20;

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

// Rows of x as they are, and zero up to `padded`. Grid: rows by chunks of 256 columns. Bound by latency.
__global__ void pad_inputs_kernel(const float* x, int64_t stride, int64_t cols, float* out, int64_t padded) {
  start_in_turn();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= padded) return;
  out[blockIdx.x * padded + i] = i < cols ? x[blockIdx.x * stride + i] : 0.0F;
}

// Tiles as bf16 rows, of the forms that are made here. Grid: tiles by their blocks; 256 threads, four inputs
// of a row each. Bound by memory.
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

// The same of any form. Grid: tiles by chunks of their inputs.
__global__ void dequantize_codes_kernel(const unsigned char* w, const __grid_constant__ Codes codes,
                                        int64_t rows, int64_t cols, BFloat16* out) {
  LARIAT_SHARED(float, table, 16);
  start_in_turn();
  if (threadIdx.x < 16) table[threadIdx.x] = codes.table[threadIdx.x];
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x) / 16, first = static_cast<int>(threadIdx.x) % 16 * 4;
  const int64_t row = blockIdx.x * kQuantRows + output, col = int64_t{blockIdx.y} * kChunk + first;
  if (row >= rows || col >= cols) return;
  const int chunk = static_cast<int>(blockIdx.y);
  const unsigned char* block = block_of_chunk(codes, w + blockIdx.x * codes.tile_bytes, chunk);
  float values[4];
  dequantize4(codes, table, block, output, chunk % codes.chunks * kChunk + first, values);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (col + i < cols) out[row * cols + col + i] = from_float<BFloat16>(values[i]);
  }
}

}  // namespace

bool CudaBackend::quant_gemv(const Matrix& x, std::span<const Product> products) {
  const Matrix& model = products[0].w;
  const bool same = std::all_of(products.begin(), products.end(),
                                [&](const Product& product) { return product.w.form() == model.form(); });
  if (!same || !is_quantized(model.dtype) || x.rows > kMmaTokens) {
    return false;
  }
  const int64_t groups = QuantLayout(model).groups(), padded = groups * kQuantGroup;
  const auto values = static_cast<size_t>(x.rows * padded);
  Gemv g = gemv_of(products, nullptr);
  g.blocks = static_cast<int>(padded / kChunk);
  g.tokens = static_cast<int>(x.rows);
  if (is_integer(model.grouping.code)) {
    auto* memory = static_cast<int8_t*>(
        scratch(Scratch::kGemmX, values + static_cast<size_t>(x.rows * groups) * sizeof(float)));
    auto* scales = reinterpret_cast<float*>(memory + values);
    launch(quantize_inputs_kernel, dim3(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(groups, kWarps))),
           dim3(kThreads), 0, queue_, typed<const float>(x), x.stride, x.cols, groups, memory, scales);
    g.groups = memory;
    g.group_scales = scales;
  } else {
    auto* memory = static_cast<float*>(scratch(Scratch::kGemmX, values * sizeof(float)));
    launch(pad_inputs_kernel, dim3(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(padded, kThreads))),
           dim3(kThreads), 0, queue_, typed<const float>(x), x.stride, x.cols, memory, padded);
    g.x = memory;
  }
  const auto n_products = static_cast<int>(products.size());
  if (model.grouping.plain()) {
    gemv_tiles(g, model.dtype, n_products, device_.multiprocessors, queue_);
  } else {
    g.codes = codes_of(model);
    gemv_codes(g, n_products, queue_);
  }
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
    const auto* first_tile = typed<const unsigned char>(w) + tile * layout.tile_bytes();
    auto* out_rows = static_cast<BFloat16*>(panel_data);
    const dim3 grid(to_unsigned(tiles), to_unsigned(layout.groups() * kQuantGroup / kChunk));
    if (w.grouping.plain()) {
      const auto kernel = w.dtype == DType::kQ4 ? dequantize_kernel<true> : dequantize_kernel<false>;
      launch(kernel, grid, dim3(kThreads), 0, queue_, first_tile, layout.tile_bytes(), layout.block_bytes(),
             rows, w.cols, out_rows);
    } else {
      launch(dequantize_codes_kernel, grid, dim3(kThreads), 0, queue_, first_tile, codes_of(w), rows, w.cols,
             out_rows);
    }
    cuda::gemm(blas(), x, Matrix(panel_data, DType::kBF16, rows, w.cols),
               Matrix(typed<float>(out) + first, DType::kF32, out.rows, rows, out.stride), scales);
  }
}

}  // namespace lariat
