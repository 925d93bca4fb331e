#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

void RmsNormRows(const Matrix& x, const Matrix& weight, float eps, const Matrix& out, int64_t first,
                 int64_t last) {
  const auto n = static_cast<size_t>(x.cols);
  WithDType(weight.data, weight.dtype, [&](const auto* w) HWY_ATTR {
    for (int64_t t = first; t < last; ++t) {
      const float* row = x.f32(t);
      ScaleRow(row, w, n, NormFactor(SumOfSquares(row, n), n, eps), out.f32(t));
    }
  });
}

// The addition and the sum of squares share one pass over the row.
void AddRmsNormRows(const Matrix& residual, const Matrix& delta, const Matrix& weight, float eps,
                    const Matrix& out, int64_t first, int64_t last) {
  const auto n = static_cast<size_t>(residual.cols);
  WithDType(weight.data, weight.dtype, [&](const auto* w) HWY_ATTR {
    for (int64_t t = first; t < last; ++t) {
      float* row = residual.f32(t);
      const float sum = AddSumOfSquares(row, delta.f32(t), n);
      ScaleRow(row, w, n, NormFactor(sum, n, eps), out.f32(t));
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(RmsNormRows);
HWY_EXPORT(AddRmsNormRows);

void CpuBackend::rms_norm(const Matrix& x, const Matrix& weight, float eps, const Matrix& out) {
  for_ranges(threads_, x.rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(RmsNormRows)(x, weight, eps, out, first, last);
  });
}

void CpuBackend::add_rms_norm(const Matrix& residual, const Matrix& delta, const Matrix& weight, float eps,
                              const Matrix& out) {
  for_ranges(threads_, residual.rows, row_grain(residual.cols), [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(AddRmsNormRows)(residual, delta, weight, eps, out, first, last);
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
