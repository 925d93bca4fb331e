// RoPE on one head, per instruction set: what the cache write, the query and the re-rotation share.
#if defined(LARIAT_KERNELS_CPU_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_ROTATE_INL_H_
#undef LARIAT_KERNELS_CPU_ROTATE_INL_H_
#else
#define LARIAT_KERNELS_CPU_ROTATE_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// What goes into the cache. f16 has too little range for some models' keys: what is beyond it becomes the
// largest f16, since one infinity in the cache would make every later token NaN. A NaN stays a NaN (x86
// returns the second operand when one is NaN).
template <typename T>
HWY_INLINE VF32 Saturated(VF32 value) {
  if constexpr (std::is_same_v<T, hwy::float16_t>) {
    const F32 d;
    return hn::Min(hn::Set(d, 65504.0F), hn::Max(hn::Set(d, -65504.0F), value));
  } else {
    return value;
  }
}

// The first `count` of the lanes, where count may be all of them or more.
template <typename T>
HWY_INLINE VF32 LoadUpTo(const T* p, size_t count) {
  const F32 d;
  return count >= hn::Lanes(d) ? LoadF32(d, p) : LoadTailF32(d, p, count);
}

template <typename T>
HWY_INLINE void StoreUpTo(VF32 value, T* p, size_t count) {
  const F32 d;
  if (count >= hn::Lanes(d)) {
    StoreF32(d, Saturated<T>(value), p);
  } else {
    StoreTailF32(d, Saturated<T>(value), p, count);
  }
}

template <typename T>
HWY_INLINE void StoreRow(const float* x, size_t n, T* out) {
  const size_t lanes = hn::Lanes(F32());
  for (size_t i = 0; i < n; i += lanes) StoreUpTo(LoadUpTo(x + i, n - i), out + i, n - i);
}

// out[0, 2 * pairs) = x[0, 2 * pairs) with pair i rotated by the angle of (cos[i], sin[i]). out may be x.
template <typename TIn, typename TOut>
HWY_INLINE void RotateHalfSplit(const TIn* x, const float* cos, const float* sin, size_t pairs, TOut* out) {
  const size_t lanes = hn::Lanes(F32());
  for (size_t i = 0; i < pairs; i += lanes) {
    const size_t count = pairs - i;
    const VF32 a = LoadUpTo(x + i, count), b = LoadUpTo(x + pairs + i, count);
    const VF32 c = LoadUpTo(cos + i, count), s = LoadUpTo(sin + i, count);
    StoreUpTo(hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i, count);
    StoreUpTo(hn::MulAdd(b, c, hn::Mul(a, s)), out + pairs + i, count);
  }
}

template <typename TIn, typename TOut>
HWY_INLINE void RotateInterleaved(const TIn* x, const float* cos, const float* sin, size_t pairs, TOut* out) {
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
    StoreRow(rotated, values, out + 2 * i);
  }
}

template <typename TIn, typename TOut>
HWY_INLINE void Rotate(const TIn* x, const float* cos, const float* sin, size_t pairs, bool interleaved,
                       TOut* out) {
  if (interleaved) {
    RotateInterleaved(x, cos, sin, pairs, out);
  } else {
    RotateHalfSplit(x, cos, sin, pairs, out);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
