// The largest value of a row, per instruction set: what argmax and the token loss share.
#if defined(LARIAT_KERNELS_CPU_MAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_MAX_INL_H_
#undef LARIAT_KERNELS_CPU_MAX_INL_H_
#else
#define LARIAT_KERNELS_CPU_MAX_INL_H_
#endif

#include <limits>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// NaN never wins; -inf for a row without a number. (Highway's Max treats NaN differently on each instruction
// set, a comparison does not.)
HWY_INLINE float MaxOfRow(const float* x, size_t n) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto larger = [](VF32 value, VF32 best)
                          HWY_ATTR { return hn::IfThenElse(hn::Gt(value, best), value, best); };
  VF32 best0 = hn::Set(d, -std::numeric_limits<float>::infinity()), best1 = best0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    best0 = larger(hn::LoadU(d, x + i), best0);
    best1 = larger(hn::LoadU(d, x + i + lanes), best1);
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, hn::Max(best0, best1)));
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
