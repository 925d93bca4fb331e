#include <algorithm>

#include "kernels/convert.h"
#include "kernels/quant.h"
#include "kernels/reference/reference_backend.h"

namespace lariat {
namespace {

// kernels/quant.h: each row of x in groups of 8-bit integers.
void quantized_matmul(const Matrix& x, const Matrix& w, const Matrix& bias, const Matrix& out) {
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

}  // namespace

void ReferenceBackend::matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
                              const Matrix& out) {
  if (is_quantized(w.dtype)) return quantized_matmul(x, w, bias, out);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t o = 0; o < w.rows; ++o) {
      double sum = bias ? load_f32(bias.data, bias.dtype, o) : 0.0;
      for (int64_t i = 0; i < x.cols; ++i) {
        const float value = compute == DType::kBF16 ? round_to_bf16(x.f32(t)[i]) : x.f32(t)[i];
        sum += static_cast<double>(value) * load_f32(w.data, w.dtype, o * w.stride + i);
      }
      out.f32(t)[o] = static_cast<float>(sum);
    }
  }
}

}  // namespace lariat
