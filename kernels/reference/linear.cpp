#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/convert.h"
#include "kernels/quant.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

void quantized_multiply(const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t o = 0; o < w.rows; ++o) {
      double sum = bias ? load_f32(bias.data, bias.dtype, o) : 0.0;
      for (int64_t first = 0; first < x.cols; first += kQuantGroup) {
        int8_t q[kQuantGroup];
        const int64_t count = std::min(kQuantGroup, x.cols - first);
        const double scale = quantize_inputs(x.f32(t) + first, count, q);
        for (int64_t i = 0; i < count; ++i) sum += scale * q[i] * dequantized(w, o, first + i);
      }
      out.f32(t)[o] = static_cast<float>(sum);
    }
  }
}

// bits: of activations; 16 are not rounded here.
void multiply(const Matrix& x, const RowBlock& block, DType compute, int bits, const Matrix& out) {
  const auto& [w, bias] = block;
  if (is_quantized(w.dtype) && is_integer(w.grouping.code) && bits == 8)
    return quantized_multiply(x, w, bias, out);
  const bool round = compute == DType::kBF16 && !is_quantized(w.dtype);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t o = 0; o < w.rows; ++o) {
      double sum = bias ? load_f32(bias.data, bias.dtype, o) : 0.0;
      for (int64_t i = 0; i < x.cols; ++i) {
        const float value = round ? round_to_bf16(x.f32(t)[i]) : x.f32(t)[i];
        sum += value * reference::get(w, o, i);
      }
      out.f32(t)[o] = static_cast<float>(sum);
    }
  }
}

}  // namespace

void ReferenceBackend::linear(const Matrix& x, const Weight& weight, const Epilogue& epilogue,
                              const Matrix& out) {
  using Kind = Epilogue::Kind;
  std::vector<float> values(static_cast<size_t>(x.rows * weight.rows()));
  const Matrix products(values.data(), DType::kF32, x.rows, weight.rows());
  int64_t first = 0;
  for (const RowBlock& block : weight.blocks) {
    multiply(x, block, weight.compute, activation_bits_, products.column_range(first, block.w.rows));
    first += block.w.rows;
  }
  if (epilogue.kind == Kind::kResidual) {
    return add_norm(epilogue.residual, products, epilogue.scale, epilogue.norm, out);
  }
  if (epilogue.kind == Kind::kGated) {
    const bool pair = weight.blocks.size() == 2;
    return glu(products.column_range(0, out.cols),
               pair ? products.column_range(out.cols, out.cols) : Matrix(), epilogue.activation, out);
  }
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t o = 0; o < out.cols; ++o) {
      const double value = epilogue.scale * reference::get(products, t, o), cap = epilogue.cap;
      reference::put(out, t, o, cap > 0 ? cap * std::tanh(value / cap) : value);
    }
  }
}

void ReferenceBackend::grouped_linear(const Matrix& x, const Weight& weight, const Routing& routing,
                                      const Matrix& out) {
  const int64_t n = routing.weights.cols;
  const bool shared = x.rows == routing.weights.rows;
  for (int64_t i = 0; i < out.rows; ++i) {
    multiply(x.row_range(shared ? i / n : i, 1), weight.group(static_cast<size_t>(routing.experts[i])),
             weight.compute, activation_bits_, out.row_range(i, 1));
  }
}

}  // namespace lariat
