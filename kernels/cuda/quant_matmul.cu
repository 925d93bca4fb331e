#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemv.cuh"
#include "kernels/quant.h"

// Products with quantized weights (kernels/quant.h). For few tokens, as on the CPU. For many tokens, panels
// of w become bf16 for cuBLAS, and x is rounded to bf16 instead of 8 bits: an error of the same size, by
// which prefill and decode differ. With activations of 16 bits, panels and x are f32.
namespace lariat {
namespace {

using namespace cuda;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int64_t kPanelElements = int64_t{64} << 20;  // enough outputs to fill the device

// part 1: the rest that part 0 leaves. Grid: rows by chunks of 8 groups; a warp per group.
__global__ void quantize_inputs_kernel(const float* x, int64_t stride, int64_t cols, int64_t groups, int part,
                                       int8_t* values, float* scales) {
  start_in_turn();
  const int64_t row = blockIdx.x, group = int64_t{blockIdx.y} * kWarps + warp_index();
  if (group >= groups) return;
  const int64_t i = group * kQuantGroup + lane_index();
  float value = i < cols ? x[row * stride + i] : 0.0F, integer = 0.0F, scale = 0.0F;
  for (int p = 0; p <= part; ++p) {
    value = fmaf(-scale, integer, value);
    const bool finite = fabsf(value) < INFINITY;
    const bool any_not_finite = warp_max(finite ? 0.0F : 1.0F) > 0.0F;
    const float largest = warp_max(finite ? fabsf(value) : 0.0F);
    const bool zero = any_not_finite || largest < kQuantSmallest;
    integer = zero ? 0.0F : nearbyintf(value * (127.0F / largest));
    scale = any_not_finite ? NAN : zero ? 0.0F : largest / 127.0F;
  }
  values[(row * groups + group) * kQuantGroup + lane_index()] = static_cast<int8_t>(integer);
  if (lane_index() == 0) scales[row * groups + group] = scale;
}

// Zero-pads rows of x. Grid: rows by chunks of 256 columns.
__global__ void pad_inputs_kernel(const float* x, int64_t stride, int64_t cols, float* out, int64_t padded) {
  start_in_turn();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= padded) return;
  out[blockIdx.x * padded + i] = i < cols ? x[blockIdx.x * stride + i] : 0.0F;
}

// Converts tiles to rows of T, bf16 or f32. Grid: tiles by chunks of inputs.
template <class T>
__global__ void dequantize_kernel(const unsigned char* w, const __grid_constant__ Codes codes, int64_t rows,
                                  int64_t cols, T* out) {
  LARIAT_SHARED(float, table, 16);
  start_in_turn();
  if (threadIdx.x < 16) table[threadIdx.x] = codes.table[threadIdx.x];
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x) / 16, first = static_cast<int>(threadIdx.x) % 16 * 4;
  const int64_t row = blockIdx.x * kQuantRows + output, col = int64_t{blockIdx.y} * kChunk + first;
  if (row >= rows || col >= cols) return;
  const int chunk = static_cast<int>(blockIdx.y), number = block_of_chunk(codes, chunk);
  const unsigned char* block = w + blockIdx.x * codes.tile_bytes + int64_t{number} * codes.block_bytes;
  float values[4];
  dequantize4(codes, table, block, output, (chunk - number * codes.chunks) * kChunk + first, values);
  T* to = out + row * cols + col;
  if constexpr (sizeof(T) == 2) {
    if (cols % 4 == 0) {
      *reinterpret_cast<uint2*>(to) = {pack2<T>(values[0], values[1]), pack2<T>(values[2], values[3])};
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (col + i < cols) to[i] = from_float<T>(values[i]);
  }
}

}  // namespace

void CudaBackend::read_by_codes(const Matrix& x, const Matrix& w, int part, Gemv& g) {
  const int64_t groups = QuantLayout(w).groups(), padded = groups * kQuantGroup;
  const auto values = static_cast<size_t>(x.rows * padded);
  g.blocks = static_cast<int>(padded / kChunk);
  g.codes = codes_of(w);
  if (is_integer(w.grouping.code)) {
    auto* memory = static_cast<int8_t*>(
        scratch(Scratch::kGemmX, values + static_cast<size_t>(x.rows * groups) * sizeof(float)));
    auto* scales = reinterpret_cast<float*>(memory + values);
    launch(quantize_inputs_kernel, dim3(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(groups, kWarps))),
           dim3(kThreads), 0, queue_, typed<const float>(x), x.stride, x.cols, groups, part, memory, scales);
    g.groups = memory;
    g.group_scales = scales;
  } else {
    auto* memory = static_cast<float*>(scratch(Scratch::kGemmX, values * sizeof(float)));
    launch(pad_inputs_kernel, dim3(to_unsigned(x.rows), to_unsigned(ceil_div<int64_t>(padded, kThreads))),
           dim3(kThreads), 0, queue_, typed<const float>(x), x.stride, x.cols, memory, padded);
    g.x = memory;
  }
}

bool CudaBackend::quant_gemv(const Matrix& x, std::span<const Product> products) {
  const Matrix& model = products[0].w;
  const bool same = std::all_of(products.begin(), products.end(),
                                [&](const Product& product) { return product.w.format() == model.format(); });
  if (!same || !is_quantized(model.dtype) || x.rows > kMmaTokens) {
    return false;
  }
  const auto n_products = static_cast<int>(products.size());
  for_parts(model, products, [&](int part, std::span<const Product> outs) {
    Gemv g = gemv_of(outs, nullptr);
    g.tokens = static_cast<int>(x.rows);
    read_by_codes(x, model, part, g);
    if (model.grouping.plain()) {
      gemv_tiles(g, model.dtype, n_products, device_.multiprocessors, queue_);
    } else {
      (is_integer(g.codes.code) ? gemv_codes : gemv_float_codes)(g, n_products, queue_);
    }
  });
  return true;
}

// A panel holds the weights of all products that fit, in x's dtype.
void CudaBackend::quant_gemm(const Matrix& x, std::span<const Product> neighbours,
                             const cuda::Scales& scales) {
  const Matrix& out = neighbours[0].out;
  const int64_t cols = x.cols;
  int64_t tiles = 0, filled = 0, done = 0;  // filled: rows of the panel; done: columns of out
  for (const Product& product : neighbours) tiles += QuantLayout(product.w).tiles();
  const int64_t room = std::clamp<int64_t>(kPanelElements / (cols * kQuantRows), 1, tiles) * kQuantRows;
  const Matrix panel(scratch(Scratch::kGemmW, static_cast<size_t>(room * cols) * size_of(x.dtype)), x.dtype,
                     room, cols);
  const auto multiply_panel = [&] {
    cuda::gemm(blas(), x, panel.row_range(0, filled),
               Matrix(typed<float>(out) + done, DType::kF32, out.rows, filled, out.stride), scales);
    done += filled;
    filled = 0;
  };
  for (const Product& product : neighbours) {
    const Matrix& w = product.w;
    const QuantLayout layout(w);
    const Codes codes = codes_of(w);
    for (int64_t tile = 0; tile < layout.tiles();) {
      const int64_t count = std::min((room - filled) / kQuantRows, layout.tiles() - tile);
      if (count == 0) {
        multiply_panel();
        continue;
      }
      const int64_t first = tile * kQuantRows, some = std::min(count * kQuantRows, w.rows - first);
      with_dtype(x.dtype, [&]<class T>(T) {
        launch(dequantize_kernel<T>, dim3(to_unsigned(count), to_unsigned(ceil_div<int64_t>(cols, kChunk))),
               dim3(kThreads), 0, queue_, typed<const unsigned char>(w) + tile * layout.tile_bytes(), codes,
               some, cols, typed<T>(panel) + filled * cols);
      });
      filled += some;
      tile += count;
    }
  }
  multiply_panel();
}

}  // namespace lariat
