#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// exp(-x) is capped below f32's largest value; what silu then gives for x < -88 differs from the exact value
// by less than 1e-35.
HWY_INLINE VF32 SiluTimes(VF32 x, VF32 up) {
  const F32 d;
  const VF32 denominator = hn::Add(hn::Set(d, 1.0F), Exp(hn::Min(hn::Set(d, 88.0F), hn::Neg(x))));
  return hn::Mul(hn::Div(x, denominator), up);
}

void SwigluRow(float* gate, const float* up, size_t n) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(SiluTimes(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, gate + i);
  }
  if (i == n) return;
  const VF32 tail = SiluTimes(LoadTailF32(d, gate + i, n - i), LoadTailF32(d, up + i, n - i));
  StoreTailF32(d, tail, gate + i, n - i);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(SwigluRow);

void CpuBackend::swiglu(const Matrix& gate, const Matrix& up) {
  for_ranges(threads_, gate.rows, row_grain(gate.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      HWY_DYNAMIC_DISPATCH(SwigluRow)(gate.f32(t), up.f32(t), static_cast<size_t>(gate.cols));
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
