#if defined(LARIAT_KERNELS_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_NORM_INL_H_
#undef LARIAT_KERNELS_CPU_NORM_INL_H_
#else
#define LARIAT_KERNELS_CPU_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Sum of load(i)^2 over [0, n), in four partial sums per lane, so that neither latency nor rounding adds up.
// load(i, count) returns the values at i, zero-padded.
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
  return SumSquares(n, [&](size_t i, size_t count) HWY_ATTR { return LoadUpTo(x + i, count); });
}

// x += scale * delta; returns the sum of squares of the result.
HWY_INLINE float AddSumOfSquares(float* x, const float* delta, float scale, size_t n) {
  const F32 d;
  const VF32 factor = hn::Set(d, scale);
  return SumSquares(n, [&](size_t i, size_t count) HWY_ATTR {
    const VF32 sum = hn::MulAdd(LoadUpTo(delta + i, count), factor, LoadUpTo(x + i, count));
    StoreUpTo(sum, x + i, count);
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
  ForVectors(n, [&](size_t i, size_t count) LARIAT_INLINE_BODY {
    StoreUpTo(hn::Mul(hn::Mul(LoadUpTo(x + i, count), f), LoadUpTo(weight + i, count)), out + i, count);
  });
}

// Sums of x - shift and of (x - shift)^2.
struct Moments {
  float sum, squares;
};

HWY_INLINE Moments MomentsAround(const float* x, size_t n, float shift) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const VF32 s = hn::Set(d, shift);
  VF32 sum0 = hn::Zero(d), sum1 = sum0, squares0 = sum0, squares1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const VF32 a = hn::Sub(hn::LoadU(d, x + i), s), b = hn::Sub(hn::LoadU(d, x + i + lanes), s);
    sum0 = hn::Add(sum0, a);
    sum1 = hn::Add(sum1, b);
    squares0 = hn::MulAdd(a, a, squares0);
    squares1 = hn::MulAdd(b, b, squares1);
  }
  for (; i < n; i += lanes) {
    const VF32 a =
        hn::IfThenElseZero(hn::FirstN(d, HWY_MIN(lanes, n - i)), hn::Sub(LoadUpTo(x + i, n - i), s));
    sum0 = hn::Add(sum0, a);
    squares0 = hn::MulAdd(a, a, squares0);
  }
  return {hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))),
          hn::GetLane(hn::SumOfLanes(d, hn::Add(squares0, squares1)))};
}

// LayerNorm without bias; out may be x. Corrected two-pass algorithm (Chan, Golub and LeVeque, The American
// Statistician 37, 1983): the sum of x - mean is the mean's rounding error, removed from variance and values,
// so that a mean much larger than the spread is harmless.
template <typename T>
HWY_NOINLINE void LayerNormRow(const float* x, const T* weight, size_t n, float eps, float* out) {
  const F32 d;
  const auto count = static_cast<float>(n);
  const float mean = MomentsAround(x, n, 0.0F).sum / count;
  const Moments moments = MomentsAround(x, n, mean);
  const float rest = moments.sum / count;
  const float factor = NormFactor(std::max(0.0F, moments.squares - moments.sum * rest), n, eps);
  const VF32 m = hn::Set(d, mean), r = hn::Set(d, rest), f = hn::Set(d, factor);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const VF32 centred = hn::Sub(hn::Sub(LoadUpTo(x + i, n - i), m), r);
    StoreUpTo(hn::Mul(hn::Mul(centred, f), LoadUpTo(weight + i, n - i)), out + i, n - i);
  }
}

HWY_NOINLINE inline void AddBias(float* x, const Matrix& bias, size_t n) {
  const F32 d;
  WithDType(bias.data, bias.dtype, [&](const auto* b) HWY_ATTR {
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      StoreUpTo(hn::Add(LoadUpTo(x + i, n - i), LoadUpTo(b + i, n - i)), x + i, n - i);
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
