#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;
constexpr int64_t kPanelElements = int64_t{16} << 20;  // of w, converted at a time

// Grid: rows by chunks of 1024 columns.
template <class From, class To>
__global__ void convert_kernel(const From* from, int64_t from_stride, DType rounding, To* to,
                               int64_t to_stride, int64_t cols) {
  start_in_turn();
  const From* row = from + blockIdx.x * from_stride;
  To* out = to + blockIdx.x * to_stride;
  for (int j = 0; j < 4; ++j) {
    const int64_t i = (int64_t{blockIdx.y} * 4 + j) * kThreads + threadIdx.x;
    if (i < cols) out[i] = from_float<To>(rounded_to(rounding, to_float(row[i])));
  }
}

// row_scale, bias: either may be null. Grid: rows by chunks of 256 columns.
__global__ void finish_kernel(float* out, int64_t stride, int64_t cols, const float* row_scale,
                              const void* bias, DType bias_dtype) {
  start_in_turn();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= cols) return;
  float value = out[blockIdx.x * stride + i];
  if (row_scale != nullptr) value *= row_scale[blockIdx.x];
  if (bias != nullptr) value += load_any(bias, bias_dtype, i);
  out[blockIdx.x * stride + i] = value;
}

// x[t] = (high[t] + low[t]) * row_scale[t]; row_scale is a power of two that scales the row's largest value
// to [2^14, 2^15): two f16 keep 22 bits. Grid: one block per row.
__global__ void split_rows_kernel(const float* x, int64_t stride, Half* high, Half* low, int64_t cols,
                                  float* row_scale) {
  LARIAT_SHARED(float, partial, kWarpSize);
  start_in_turn();
  const float* row = x + blockIdx.x * stride;
  float largest = 0.0F;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) largest = fmaxf(largest, fabsf(row[i]));
  largest = block_max(largest, partial);
  const bool usual = largest > 1e-30F && largest < INFINITY;
  const int exponent = usual ? 14 - ilogbf(largest) : 0;
  const float scale = ldexpf(1.0F, exponent);
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    const float value = row[i] * scale;
    const Half rounded = from_float<Half>(value);
    high[blockIdx.x * cols + i] = rounded;
    low[blockIdx.x * cols + i] = from_float<Half>(value - to_float(rounded));
  }
  if (threadIdx.x == 0) row_scale[blockIdx.x] = ldexpf(1.0F, -exponent);
}

bool in_two_terms(const Matrix& w, DType compute) { return compute == DType::kF32 && w.dtype == DType::kF16; }

bool beside(const Matrix& a, const Matrix& b) {
  return b.stride == a.stride && b.data == a.column_range(a.cols, 0).data;
}

// Whether b's weight follows a's in memory (irrelevant if quantized), and b's out is adjacent to a's.
bool follows(const Product& a, const Product& b) {
  if (is_quantized(a.w.dtype) || is_quantized(b.w.dtype)) {
    return is_quantized(a.w.dtype) && is_quantized(b.w.dtype) && beside(a.out, b.out);
  }
  if (a.w.dtype != b.w.dtype || a.w.cols != b.w.cols || a.w.stride != b.w.stride) return false;
  return b.w.data == a.w.row_range(a.w.rows, 0).data && beside(a.out, b.out);
}

// Number of first products that form one product.
size_t count_neighbours(std::span<const Product> products) {
  size_t count = 1;
  while (count < products.size() && follows(products[count - 1], products[count])) ++count;
  return count;
}

}  // namespace

void CudaBackend::convert(const Matrix& from, DType rounding, const Matrix& to) {
  const dim3 grid(to_unsigned(from.rows), to_unsigned(ceil_div<int64_t>(from.cols, int64_t{kThreads} * 4)));
  with_dtype(from.dtype, [&]<class From>(From) {
    with_dtype(to.dtype, [&]<class To>(To) {
      launch(convert_kernel<From, To>, grid, dim3(kThreads), 0, queue_, typed<From>(from), from.stride,
             rounding, typed<To>(to), to.stride, from.cols);
    });
  });
}

void CudaBackend::linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) {
  using Kind = Epilogue::Kind;
  if (x.rows == 0) return;
  if (epilogue.kind == Kind::kGated) return gated(x, weight, epilogue.activation, out);
  if (epilogue.kind == Kind::kResidual) return add_product(x, weight, epilogue, out);
  multiply(x, Products(weight, out), weight.compute);
  if (epilogue.kind == Kind::kCap) soft_cap(out, epilogue.scale, epilogue.cap);
}

void CudaBackend::multiply(const Matrix& x, std::span<const Product> products, DType compute) {
  if (quant_gemv(x, products)) return;
  if (const GemvKind kind = gemv_kind(x, products, compute); kind != GemvKind::kNone) {
    return gemv(kind, x, products, compute, nullptr);
  }
  if (products.size() > 1 && x.rows <= kMmaTokens) {
    for (const Product& product : products) multiply(x, {&product, 1}, compute);
    return;
  }
  RoundedX rounded;
  while (!products.empty()) {
    const size_t count = count_neighbours(products);
    gemm(x, products.first(count), compute, rounded, {});
    products = products.subspan(count);
  }
}

// For many tokens cuBLAS adds the product to the residual.
void CudaBackend::add_product(const Matrix& x, const Weight& weight, const Epilogue& epilogue,
                              const Matrix& out) {
  const auto& [w, bias] = weight.blocks[0];
  const Product alone = {w, bias, epilogue.residual};
  const bool few = is_quantized(w.dtype) ? x.rows <= kMmaTokens
                                         : gemv_kind(x, {&alone, 1}, weight.compute) != GemvKind::kNone;
  if (few || in_two_terms(w, weight.compute) || (bias && bias.dtype != DType::kF32)) {
    const Matrix product = product_memory(DType::kF32, x.rows, w.rows);
    multiply(x, Products(weight, product), weight.compute);
    return add_norm(epilogue.residual, product, epilogue.scale, epilogue.norm, out);
  }
  RoundedX rounded;
  const Product sum = {w, {}, epilogue.residual};
  gemm(x, {&sum, 1}, weight.compute, rounded, {epilogue.scale, 1.0F});
  if (bias) {
    const Matrix every_row(bias.data, bias.dtype, x.rows, w.rows, 0);
    return add_norm(epilogue.residual, every_row, epilogue.scale, epilogue.norm, out);
  }
  if (epilogue.norm) norm(epilogue.residual, epilogue.norm, out);
}

// Few tokens with float weights take one launch. For many tokens, bf16 out and no biases, products are
// rounded to bf16, which halves the activation's reads.
void CudaBackend::gated(const Matrix& x, const Weight& weight, Activation activation, const Matrix& out) {
  const bool pair = weight.blocks.size() == 2;
  if (pair) {
    const RowBlock &gate = weight.blocks[0], &up = weight.blocks[1];
    const Product unit[] = {{gate.w, gate.bias, out}, {up.w, up.bias, {}}};
    const GemvKind kind = gemv_kind(x, unit, weight.compute);
    if (kind != GemvKind::kNone) return gemv(kind, x, unit, weight.compute, &activation);
  }
  const bool rounds =
      pair && out.dtype == DType::kBF16 && x.rows > kMmaTokens && weight.compute == DType::kBF16 &&
      std::all_of(weight.blocks.begin(), weight.blocks.end(),
                  [](const RowBlock& block) { return block.w.dtype == DType::kBF16 && !block.bias; });
  const Matrix products = product_memory(rounds ? DType::kBF16 : DType::kF32, x.rows, weight.rows());
  multiply(x, Products(weight, products), weight.compute);
  glu(products.column_range(0, out.cols), pair ? products.column_range(out.cols, out.cols) : Matrix(),
      activation, out);
}

Matrix CudaBackend::product_memory(DType dtype, int64_t rows, int64_t cols) {
  return {scratch(Scratch::kProduct, static_cast<size_t>(rows * cols) * size_of(dtype)), dtype, rows, cols};
}

void CudaBackend::finish(const Matrix& out, const float* row_scale, const Matrix& bias) {
  if (row_scale == nullptr && !bias) return;
  const dim3 grid(to_unsigned(out.rows), to_unsigned(ceil_div<int64_t>(out.cols, kThreads)));
  launch(finish_kernel, grid, dim3(kThreads), 0, queue_, typed<float>(out), out.stride, out.cols, row_scale,
         bias.data, bias.dtype);
}

const float* CudaBackend::gemm_two_terms(const Matrix& x, const Matrix& w, const Matrix& out) {
  const auto elements = static_cast<size_t>(x.rows * x.cols);
  auto* high = static_cast<Half*>(
      scratch(Scratch::kGemmX, 2 * elements * sizeof(Half) + static_cast<size_t>(x.rows) * sizeof(float)));
  Half* low = high + elements;
  auto* row_scale = reinterpret_cast<float*>(low + elements);
  launch(split_rows_kernel, dim3(to_unsigned(x.rows)), dim3(kThreads), 0, queue_, typed<float>(x), x.stride,
         high, low, x.cols, row_scale);
  cuda::gemm(blas(), Matrix(high, DType::kF16, x.rows, x.cols), w, out);
  cuda::gemm(blas(), Matrix(low, DType::kF16, x.rows, x.cols), w, out, {1.0F, 1.0F});
  return row_scale;
}

// A converted x is in working memory and is reused for further products.
const Matrix& CudaBackend::round_x(const Matrix& x, DType compute, DType dtype, RoundedX& rounded) {
  if (!rounded.matrix || rounded.compute != compute || rounded.matrix.dtype != dtype) {
    rounded.compute = compute;
    rounded.matrix = x;
    if (x.dtype != compute) {
      rounded.matrix = Matrix(scratch(Scratch::kGemmX, static_cast<size_t>(x.rows * x.cols) * size_of(dtype)),
                              dtype, x.rows, x.cols);
      convert(x, compute, rounded.matrix);
    }
  }
  return rounded.matrix;
}

void CudaBackend::gemm(const Matrix& x, std::span<const Product> neighbours, DType compute, RoundedX& rounded,
                       const Scales& scales) {
  Matrix w = neighbours[0].w, out = neighbours[0].out;
  for (const Product& next : neighbours.subspan(1)) {
    w.rows += next.w.rows;
    out.cols += next.out.cols;
  }
  const float* row_scale = nullptr;
  if (is_quantized(w.dtype)) {
    const DType dtype = activation_bits_ == 8 ? DType::kBF16 : DType::kF32;
    quant_gemm(round_x(x, dtype, dtype, rounded), neighbours, scales);
  } else if (in_two_terms(w, compute)) {
    row_scale = gemm_two_terms(x, w, out);
    rounded = {};  // its memory now holds the terms
  } else {
    // The product runs in w's dtype if x is rounded to it, otherwise in f32.
    float_gemm(round_x(x, compute, w.dtype == compute ? compute : DType::kF32, rounded), w, out, scales);
  }
  for (const Product& each : neighbours) finish(each.out, row_scale, each.bias);
}

void CudaBackend::float_gemm(const Matrix& x, const Matrix& w, const Matrix& out, const Scales& scales) {
  if (w.dtype == x.dtype) return cuda::gemm(blas(), x, w, out, scales);

  const int64_t panel = std::clamp<int64_t>(kPanelElements / w.cols, 1, w.rows);
  void* panel_data = scratch(Scratch::kGemmW, static_cast<size_t>(panel * w.cols) * sizeof(float));
  for (int64_t first = 0; first < w.rows; first += panel) {
    const int64_t count = std::min(panel, w.rows - first);
    const Matrix exact(panel_data, DType::kF32, count, w.cols);
    convert(w.row_range(first, count), DType::kF32, exact);
    cuda::gemm(blas(), x, exact, Matrix(typed<float>(out) + first, DType::kF32, out.rows, count, out.stride),
               scales);
  }
}

}  // namespace lariat
