// exp() of one vector of f32, per instruction set: what softmax, silu and the token loss share.
#if defined(LARIAT_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_EXP_INL_H_
#undef LARIAT_KERNELS_CPU_EXP_INL_H_
#else
#define LARIAT_KERNELS_CPU_EXP_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// exp(x) for x <= 88, within 2 ulp. Below -87.3, where the result would be subnormal, 0 (so exp(-inf) = 0);
// a NaN stays a NaN.
//
// x = n ln2 + r with |r| <= ln2 / 2: adding 1.5 * 2^23 rounds x / ln2 to the integer n and leaves n in the
// low bits of the sum. exp(r) = 1 + r + r^2 g(r), g interpolated at the Chebyshev nodes (error 1e-8).
HWY_INLINE VF32 Exp(VF32 x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const VF32 magic = hn::Set(d, 12582912.0F);
  const VF32 shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const VF32 n = hn::Sub(shifted, magic);
  // ln2 in two parts; the first has so few bits that n times it is exact.
  const VF32 r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x));
  VF32 g = hn::Set(d, 0.00139264006F);
  g = hn::MulAdd(g, r, hn::Set(d, 0.00836335309F));
  g = hn::MulAdd(g, r, hn::Set(d, 0.0416665524F));
  g = hn::MulAdd(g, r, hn::Set(d, 0.166665763F));
  g = hn::MulAdd(g, r, hn::Set(d, 0.5F));
  const VF32 exp_r = hn::Add(hn::MulAdd(g, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const VF32 power = hn::BitCast(d, hn::Add(exponent, hn::Set(du, 0x3f800000)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3F)), hn::Mul(exp_r, power));
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
