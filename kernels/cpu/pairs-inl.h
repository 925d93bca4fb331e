// Even and odd lanes of two vectors, per instruction set.
#if defined(LARIAT_KERNELS_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_PAIRS_INL_H_
#undef LARIAT_KERNELS_CPU_PAIRS_INL_H_
#else
#define LARIAT_KERNELS_CPU_PAIRS_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// The even (odd) lanes of low, then those of high. With vectors of one lane they are simply the two.
HWY_INLINE VF32 EvenLanes(VF32 low, VF32 high) {
#if HWY_TARGET == HWY_SCALAR
  (void)high;
  return low;
#else
  return hn::ConcatEven(F32(), high, low);
#endif
}

HWY_INLINE VF32 OddLanes(VF32 low, VF32 high) {
#if HWY_TARGET == HWY_SCALAR
  (void)low;
  return high;
#else
  return hn::ConcatOdd(F32(), high, low);
#endif
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
