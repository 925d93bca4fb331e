// RMSNorm over one row or one head, per instruction set: what rms_norm and the q/k norms share.
#if defined(LARIAT_KERNELS_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_NORM_INL_H_
#undef LARIAT_KERNELS_CPU_NORM_INL_H_
#else
#define LARIAT_KERNELS_CPU_NORM_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// sum of load(i)^2 over [0, n): four partial sums per lane, so that neither latency nor rounding adds up.
// load(i, count) yields the values at i; the last, shorter vector is padded with zeros.
template <class Load>
HWY_INLINE float SumSquares(size_t n, const Load& load) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  VF32 sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const VF32 a = load(i, lanes), b = load(i + lanes, lanes);
    const VF32 c = load(i + 2 * lanes, lanes), e = load(i + 3 * lanes, lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
    sum2 = hn::MulAdd(c, c, sum2);
    sum3 = hn::MulAdd(e, e, sum3);
  }
  for (; i < n; i += lanes) {
    const VF32 a = load(i, HWY_MIN(lanes, n - i));
    sum0 = hn::MulAdd(a, a, sum0);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

HWY_INLINE float SumOfSquares(const float* x, size_t n) {
  const F32 d;
  return SumSquares(n, [&](size_t i, size_t count) HWY_ATTR {
    return count == hn::Lanes(d) ? hn::LoadU(d, x + i) : LoadTailF32(d, x + i, count);
  });
}

// x += scale * delta; the sum of squares of the result.
HWY_INLINE float AddSumOfSquares(float* x, const float* delta, float scale, size_t n) {
  const F32 d;
  const VF32 factor = hn::Set(d, scale);
  return SumSquares(n, [&](size_t i, size_t count) HWY_ATTR {
    if (count == hn::Lanes(d)) {
      const VF32 sum = hn::MulAdd(hn::LoadU(d, delta + i), factor, hn::LoadU(d, x + i));
      hn::StoreU(sum, d, x + i);
      return sum;
    }
    const VF32 sum = hn::MulAdd(LoadTailF32(d, delta + i, count), factor, LoadTailF32(d, x + i, count));
    StoreTailF32(d, sum, x + i, count);
    return sum;
  });
}

HWY_INLINE float NormFactor(float sum_of_squares, size_t n, float eps) {
  return 1.0F / std::sqrt(sum_of_squares / static_cast<float>(n) + eps);
}

// out = x * weight * factor; out may be x.
template <typename T>
HWY_INLINE void ScaleRow(const float* x, const T* weight, size_t n, float factor, float* out) {
  const F32 d;
  const VF32 f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), f), LoadF32(d, weight + i)), d, out + i);
  }
  if (i == n) return;
  const VF32 tail = hn::Mul(hn::Mul(LoadTailF32(d, x + i, n - i), f), LoadTailF32(d, weight + i, n - i));
  StoreTailF32(d, tail, out + i, n - i);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
