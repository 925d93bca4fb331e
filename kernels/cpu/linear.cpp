#include <algorithm>
#include <cassert>

#include "kernels/convert.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/parallel.h"

namespace lariat {

void CpuBackend::linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue, const Matrix& out) {
  if (epilogue.kind == Epilogue::Kind::kGated) {
    const RowBlock &gate = weight.blocks.front(), &up = weight.blocks.back();
    if (weight.blocks.size() == 1) {
      const Product inner{up.w, up.bias, out};
      multiply(x, {&inner, 1}, weight.compute);
      return glu(out, {}, epilogue.activation, out);
    }
    if (fuses(x, weight)) {
      const Product product{gate.w, {}, out, up.w, epilogue.activation};
      return multiply_alike(x, {&product, 1}, weight.compute);
    }
    const auto bytes = static_cast<size_t>(out.rows * out.cols) * sizeof(float);
    const Matrix ups(at_least(up_, bytes), DType::kF32, out.rows, out.cols);
    const Product products[] = {{gate.w, gate.bias, out}, {up.w, up.bias, ups}};
    multiply(x, products, weight.compute);
    return glu(out, ups, epilogue.activation, out);
  }
  multiply(x, Products(weight, out), weight.compute);
  if (epilogue.kind == Epilogue::Kind::kResidual) {
    add_norm(epilogue.residual, out, epilogue.scale, epilogue.norm, out);
  } else if (epilogue.kind == Epilogue::Kind::kCap) {
    soft_cap(out, epilogue.scale, epilogue.cap);
  }
}

// Whether a gated unit is one product on AMX, whose gate and up stay in cache.
bool CpuBackend::fuses(const Matrix& x, const Weight& gated) const {
  const RowBlock &gate = gated.blocks.front(), &up = gated.blocks.back();
  return x.rows > cpu::kGemvRows && activation_bits_ == 8 && !gate.bias && !up.bias &&
         cpu::on_tiles(gate.w) && cpu::on_tiles(up.w) && gate.w.tiled == up.w.tiled;
}

void CpuBackend::multiply(const Matrix& x, std::span<const Product> products, DType compute) {
  const auto reads_x_as = [](const Matrix& first, const Matrix& w) {
    if (!is_quantized(first.dtype) || !is_quantized(w.dtype)) return first.dtype == w.dtype;
    return is_integer(first.grouping.code) == is_integer(w.grouping.code);
  };
  while (!products.empty()) {
    const auto other = std::find_if_not(products.begin(), products.end(), [&](const Product& product) {
      return reads_x_as(products[0].w, product.w);
    });
    const auto alike = static_cast<size_t>(other - products.begin());
    const Matrix& w = products[0].w;
    const bool rounds = activation_bits_ == 8 || is_quantized(w.dtype);
    if (compute == DType::kBF16 && w.tiled && !rounds) {
      multiply_in_parts(x, products.first(alike));
    } else {
      multiply_alike(x, products.first(alike), rounds ? compute : DType::kF32);
    }
    products = products.subspan(alike);
  }
}

void CpuBackend::multiply_alike(const Matrix& x, std::span<const Product> products, DType compute) {
  assert(x.dtype == DType::kF32);
  for ([[maybe_unused]] const Product& p : products) {
    assert(p.out.dtype == DType::kF32 && x.cols == p.w.cols && p.out.rows == x.rows &&
           p.out.cols == p.w.rows);
    assert(!p.bias || p.bias.cols == p.w.rows);
  }
  if (x.rows == 0 || outputs_of(products) == 0) return;
  const auto n = static_cast<int64_t>(products.size()) + (products[0].up ? 1 : 0);
  const Matrix& w = products[0].w;
  const bool many = x.rows > cpu::kGemvRows, tiles = many && cpu::has_amx_bf16();
  const bool codes = !many || (tiles ? activation_bits_ == 16 : is_integer(w.grouping.code));
  if (is_quantized(w.dtype) && codes) return multiply_codes(x, products);
  if (x.rows > cpu::kGemvRows) {
    paths_.gemm += n;
    void* memory = scratch(cpu::gemm_scratch_bytes(x, products, compute, threads_));
    return cpu::gemm(x, products, compute, memory, threads_);
  }
  paths_.gemv += n;
  if (compute == DType::kBF16) {
    void* const memory = scratch(cpu::rounded_bytes(x.rows, x.cols));
    cpu::gemv(cpu::rounded_rows(x, memory), products, threads_);
  } else {
    cpu::gemv(x, products, threads_);
  }
}

// x in two bf16 parts, whose products are added.
void CpuBackend::multiply_in_parts(const Matrix& x, std::span<const Product> products) {
  const int64_t cols = outputs_of(products);
  const auto floats = static_cast<size_t>(x.rows * (x.cols + cols));
  const Matrix rest(at_least(rest_, floats * sizeof(float)), DType::kF32, x.rows, x.cols);
  const Products of_rest(products, {rest.f32(x.rows), DType::kF32, x.rows, cols});
  for_ranges(threads_, x.rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      std::transform(x.f32(t), x.f32(t) + x.cols, rest.f32(t),
                     [](float value) { return value - round_to_bf16(value); });
    }
  });
  multiply_alike(x, products, DType::kBF16);
  multiply_alike(rest, of_rest, DType::kBF16);
  const std::span<const Product> low = of_rest;
  for (size_t i = 0; i < low.size(); ++i) add_norm(products[i].out, low[i].out, 1.0F, {}, low[i].out);
}

void CpuBackend::multiply_codes(const Matrix& x, std::span<const Product> products) {
  (x.rows > cpu::kFewQuantRows ? paths_.gemm : paths_.gemv) += static_cast<int64_t>(products.size());
  void* memory = scratch(cpu::quant_matmul_scratch_bytes(x, products, activation_bits_, threads_));
  cpu::quant_matmul(x, products, activation_bits_, memory, threads_);
}

}  // namespace lariat
