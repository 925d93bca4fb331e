#include "kernels/convert.h"
#include "kernels/reference/reference_backend.h"

namespace lariat {

void ReferenceBackend::matmul(const Matrix& x, const Matrix& w, const Matrix& bias, DType compute,
                              const Matrix& out) {
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
