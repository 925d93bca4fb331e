// Loops that are unrolled before the compiler decides what lives in registers, per instruction set: an array
// of vectors that is only indexed by such a loop's counter never touches memory.
#if defined(LARIAT_KERNELS_CPU_UNROLL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_UNROLL_INL_H_
#undef LARIAT_KERNELS_CPU_UNROLL_INL_H_
#else
#define LARIAT_KERNELS_CPU_UNROLL_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#ifndef LARIAT_INLINE_BODY
#define LARIAT_INLINE_BODY HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// body(0), ..., body(kEnd - 1), the argument being a compile-time constant. body: [&](auto i)
// LARIAT_INLINE_BODY { ... }
template <int64_t kEnd, int64_t kFirst = 0, class Body>
HWY_INLINE void Unroll(const Body& body) {
  if constexpr (kFirst < kEnd) {
    body(std::integral_constant<int64_t, kFirst>());
    Unroll<kEnd, kFirst + 1>(body);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
