#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/argmax.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/max-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// The largest value first, then the first place that holds it: two simple passes, the second mostly short.
int32_t ArgmaxRow(const float* x, size_t n) {
  const F32 d;
  const float largest = MaxOfRow(x, n);
  const VF32 wanted = hn::Set(d, largest);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), wanted));
    if (lane >= 0) return static_cast<int32_t>(i) + static_cast<int32_t>(lane);
  }
  for (; i < n; ++i) {
    if (x[i] == largest) return static_cast<int32_t>(i);
  }
  return 0;  // nothing but NaN
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(ArgmaxRow);

void CpuBackend::argmax(const Matrix& logits, std::span<int32_t> ids) {
  for_ranges(threads_, logits.rows, row_grain(logits.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      ids[static_cast<size_t>(t)] =
          HWY_DYNAMIC_DISPATCH(ArgmaxRow)(logits.f32(t), static_cast<size_t>(logits.cols));
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
