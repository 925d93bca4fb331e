#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/add.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

void AddRow(float* x, const float* delta, size_t n) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, delta + i)), d, x + i);
  }
  for (; i < n; ++i) x[i] += delta[i];
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(AddRow);

void CpuBackend::add(const Matrix& x, const Matrix& delta) {
  for_ranges(threads_, x.rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      HWY_DYNAMIC_DISPATCH(AddRow)(x.f32(t), delta.f32(t), static_cast<size_t>(x.cols));
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
