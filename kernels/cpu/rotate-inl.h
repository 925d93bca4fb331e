#if defined(LARIAT_KERNELS_CPU_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_ROTATE_INL_H_
#undef LARIAT_KERNELS_CPU_ROTATE_INL_H_
#else
#define LARIAT_KERNELS_CPU_ROTATE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Stores numbers in the cache. Numbers beyond f16 become the largest f16: a cached infinity would make every
// later token NaN. A NaN stays a NaN (x86 returns the second operand).
template <typename T>
class CacheStore {
  using I32 = hn::RebindToSigned<F32>;
  static constexpr bool kSaturates = std::is_same_v<T, hwy::float16_t>;

 public:
  HWY_INLINE CacheStore() : largest_(hn::Zero(I32())) {}

  HWY_INLINE void operator()(VF32 value, T* p, size_t count) {
    if constexpr (kSaturates) {
      const F32 d;
      // Magnitudes compare like their bits; an integer comparison takes one cycle.
      largest_ = hn::Max(largest_, hn::BitCast(I32(), hn::Abs(value)));
      value = hn::Min(hn::Set(d, 65504.0F), hn::Max(hn::Set(d, -65504.0F), value));
    }
    StoreUpTo(value, p, count);
  }

  // Whether a stored number becomes the largest f16 or was a NaN.
  HWY_INLINE bool saturated() const {
    if constexpr (!kSaturates) return false;
    const auto rounds_below = hn::BitCast(I32(), hn::Set(F32(), 65488.0F));  // half an ulp below 65504
    return !hn::AllFalse(I32(), hn::Gt(largest_, rounds_below));
  }

 private:
  hn::Vec<I32> largest_;
};

template <typename T>
int64_t CountSaturated(const T* stored, size_t n) {
  if constexpr (!std::is_same_v<T, hwy::float16_t>) return 0;
  const auto* bits = reinterpret_cast<const uint16_t*>(stored);
  return std::count_if(bits, bits + n, [](uint16_t x) { return (x & 0x7fff) == 0x7bff; });
}

template <typename T>
HWY_INLINE void StoreRow(const float* x, size_t n, T* out, CacheStore<T>& store) {
  const size_t lanes = hn::Lanes(F32());
  for (size_t i = 0; i < n; i += lanes) store(LoadUpTo(x + i, n - i), out + i, n - i);
}

// Pair i is rotated by the angle of (cos[i], sin[i]). out may be x.
template <typename TIn, typename TOut>
HWY_INLINE void RotateHalfSplit(const TIn* x, const float* cos, const float* sin, size_t pairs, TOut* out,
                                CacheStore<TOut>& store) {
  const size_t lanes = hn::Lanes(F32());
  for (size_t i = 0; i < pairs; i += lanes) {
    const size_t count = pairs - i;
    const VF32 a = LoadUpTo(x + i, count), b = LoadUpTo(x + pairs + i, count);
    const VF32 c = LoadUpTo(cos + i, count), s = LoadUpTo(sin + i, count);
    store(hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i, count);
    store(hn::MulAdd(b, c, hn::Mul(a, s)), out + pairs + i, count);
  }
}

template <typename TIn, typename TOut>
HWY_INLINE void RotateInterleaved(const TIn* x, const float* cos, const float* sin, size_t pairs, TOut* out,
                                  CacheStore<TOut>& store) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float rotated[2 * hn::MaxLanes(F32())];
  for (size_t i = 0; i < pairs; i += lanes) {
    const size_t count = HWY_MIN(pairs - i, lanes), values = 2 * count;
    const VF32 low = LoadUpTo(x + 2 * i, values);
    const VF32 high = values > lanes ? LoadUpTo(x + 2 * i + lanes, values - lanes) : hn::Zero(d);
    const VF32 a = EvenLanes(low, high), b = OddLanes(low, high);
    const VF32 c = LoadUpTo(cos + i, count), s = LoadUpTo(sin + i, count);
    hn::StoreInterleaved2(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(b, c, hn::Mul(a, s)), d, rotated);
    StoreRow(rotated, values, out + 2 * i, store);
  }
}

template <typename TIn, typename TOut>
HWY_INLINE void Rotate(const TIn* x, const float* cos, const float* sin, size_t pairs, bool interleaved,
                       TOut* out, CacheStore<TOut>& store) {
  if (interleaved) {
    RotateInterleaved(x, cos, sin, pairs, out, store);
  } else {
    RotateHalfSplit(x, cos, sin, pairs, out, store);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
