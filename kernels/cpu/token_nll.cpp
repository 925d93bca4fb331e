#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/token_nll.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/max-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// sum of exp(x - largest): each term in f32, the sum in double.
double SumExp(const float* x, size_t n, float largest) {
  const F32 d;
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const size_t lanes = hn::Lanes(d);
  const VF32 shift = hn::Set(d, largest);
  HWY_ALIGN float terms[hn::MaxLanes(F32())];
  auto sum = hn::Zero(d64);
  const auto accumulate = [&]() HWY_ATTR {
    for (size_t i = 0; i < lanes; i += hn::Lanes(d64)) {
      sum = hn::Add(sum, hn::PromoteTo(d64, hn::LoadU(d32, terms + i)));
    }
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::Store(Exp(hn::Sub(hn::LoadU(d, x + i), shift)), d, terms);
    accumulate();
  }
  if (i < n) {
    const VF32 tail = Exp(hn::Sub(LoadTailF32(d, x + i, n - i), shift));
    hn::Store(hn::IfThenElseZero(hn::FirstN(d, n - i), tail), d, terms);
    accumulate();
  }
  return hn::GetLane(hn::SumOfLanes(d64, sum));
}

double NllRow(const float* logits, size_t n, int32_t target) {
  const float largest = MaxOfRow(logits, n);
  return static_cast<double>(largest) + std::log(SumExp(logits, n, largest)) -
         static_cast<double>(logits[target]);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(NllRow);

void CpuBackend::token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) {
  for_ranges(threads_, logits.rows, row_grain(logits.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const auto token = static_cast<size_t>(t);
      nll[token] =
          HWY_DYNAMIC_DISPATCH(NllRow)(logits.f32(t), static_cast<size_t>(logits.cols), targets[token]);
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
