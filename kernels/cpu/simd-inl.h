// Vector helpers: loads and stores of any dtype (bitwise identical to kernels/convert.h), exp, and unrolled
// loops. Included once per instruction set.
#if defined(LARIAT_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_SIMD_INL_H_
#undef LARIAT_KERNELS_CPU_SIMD_INL_H_
#else
#define LARIAT_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/convert.h"

#ifndef LARIAT_INLINE_BODY
#define LARIAT_INLINE_BODY HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;  // the type of all arithmetic
using VF32 = hn::Vec<F32>;

// `value` as bits of a 16-bit type, in the low half of each u32.
template <class D, class V>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Bf16Bits(D d, V value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto top = hn::ShiftRight<16>(bits);
  const auto half_or_just_below = hn::Add(hn::And(top, hn::Set(du, 1)), hn::Set(du, 0x7fff));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half_or_just_below));
  const auto nan = hn::RebindMask(du, hn::IsNaN(value));
  (void)d;
  return hn::IfThenElse(nan, hn::Or(top, hn::Set(du, 0x40)), rounded);
}

template <class D, class V>
HWY_INLINE V RoundToBf16(D d, V value) {
  return hn::BitCast(d, hn::ShiftLeft<16>(Bf16Bits(d, value)));
}

// Highway's software f16 conversion is wrong for infinities and NaNs (1.0.3): its instruction sets convert
// with integers.
#if HWY_ARCH_X86 && (HWY_TARGET >= HWY_SSE4 || defined(HWY_DISABLE_F16C))
#define LARIAT_F16_IN_SOFTWARE 1
#elif HWY_TARGET == HWY_SCALAR
#define LARIAT_F16_IN_SOFTWARE 1
#else
#define LARIAT_F16_IN_SOFTWARE 0
#endif

#if LARIAT_F16_IN_SOFTWARE
// As in kernels/convert.h, on u32 lanes.
template <class D, class VU>
HWY_INLINE hn::Vec<D> F16BitsToF32(D d, VU half) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000)));
  const auto magnitude = hn::And(half, hn::Set(du, 0x7fff));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, (127U - 15U) << 23));
  const auto special = hn::Add(shifted, hn::Set(du, (255U - 31U) << 23));
  const auto subnormal =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1p-24F)));
  const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, 0x7c00)), hn::Set(du, 0x400000));
  auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), subnormal, normal);
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7bff)), hn::Or(special, quiet), bits);
  return hn::BitCast(d, hn::Or(sign, bits));
}

template <class D, class V>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> F16Bits(D d, V value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
  const auto even = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const auto rounding = hn::Add(even, hn::Set(du, 0xfff));
  auto half = hn::ShiftRight<13>(hn::Sub(hn::Add(magnitude, rounding), hn::Set(du, 0x38000000)));
  const auto half_ulp = hn::Set(d, 0.5F);
  const auto subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), half_ulp)), hn::BitCast(du, half_ulp));
  half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000)), subnormal, half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefff)), hn::Set(du, 0x7c00), half);
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff));
  const auto nan = hn::RebindMask(du, hn::IsNaN(value));
  return hn::Or(sign, hn::IfThenElse(nan, hn::Or(payload, hn::Set(du, 0x7e00)), half));
}
#endif

// Loads and widens values at any alignment.
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const hwy::bfloat16_t* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const hwy::float16_t* HWY_RESTRICT p) {
#if LARIAT_F16_IN_SOFTWARE
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  return F16BitsToF32(d, hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p))));
#else
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
#endif
}

// Rounds to nearest even.
template <class D, class V>
HWY_INLINE void StoreF32(D d, V value, float* HWY_RESTRICT p) {
  hn::StoreU(value, d, p);
}

template <class D, class V>
HWY_INLINE void StoreF32(D d, V value, hwy::bfloat16_t* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, Bf16Bits(d, value)), d16, reinterpret_cast<uint16_t*>(p));
}

template <class D, class V>
HWY_INLINE void StoreF32(D /*d*/, V value, hwy::float16_t* HWY_RESTRICT p) {
#if LARIAT_F16_IN_SOFTWARE
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, F16Bits(D(), value)), d16, reinterpret_cast<uint16_t*>(p));
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, value), d16, p);
#endif
}

// Loads `count` < Lanes(d) values, padded with zeros; reads no memory after them.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadTailF32(D d, const T* HWY_RESTRICT p, size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, p, count * sizeof(T));
  return LoadF32(d, lanes);
}

template <class D, class V, typename T>
HWY_INLINE void StoreTailF32(D d, V value, T* HWY_RESTRICT p, size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  StoreF32(d, value, lanes);
  std::memcpy(p, lanes, count * sizeof(T));
}

// count may be Lanes or more.
template <typename T>
HWY_INLINE VF32 LoadUpTo(const T* p, size_t count) {
  const F32 d;
  return count >= hn::Lanes(d) ? LoadF32(d, p) : LoadTailF32(d, p, count);
}

template <typename T>
HWY_INLINE void StoreUpTo(VF32 value, T* p, size_t count) {
  const F32 d;
  if (count >= hn::Lanes(d)) {
    StoreF32(d, value, p);
  } else {
    StoreTailF32(d, value, p, count);
  }
}

// Calls body(i, count) for the vectors of n values. For all but the last vector, LoadUpTo and StoreUpTo
// become plain loads and stores. body: [&](size_t i, size_t count) LARIAT_INLINE_BODY { ... }
template <class Body>
HWY_INLINE void ForVectors(size_t n, const Body& body) {
  const size_t lanes = hn::Lanes(F32());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}

// Calls body(pointer to the stored type). Lambdas need HWY_ATTR: they do not inherit the instruction set of
// the enclosing function.
template <class Body>
HWY_INLINE void WithDType(void* data, DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(static_cast<float*>(data));
    case DType::kF16:
      return body(static_cast<hwy::float16_t*>(data));
    case DType::kBF16:
      return body(static_cast<hwy::bfloat16_t*>(data));
    case DType::kQ8:
    case DType::kQ4:
      HWY_DASSERT(false);
  }
}

// exp(x) for x <= 88, within 2 ulp; 0 below -87.3, where the result would be subnormal. A NaN stays a NaN:
// Highway's exp (contrib/math, 1.0.3) maps NaNs to 0 and is a quarter slower.
//
// x = n ln2 + r with |r| <= ln2 / 2: adding 1.5 * 2^23 rounds x / ln2 to the integer n and leaves n in the
// low bits of the sum. exp(r) = 1 + r + r^2 g(r), g interpolated at the Chebyshev nodes (error 1e-8).
HWY_INLINE VF32 Exp(VF32 x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const VF32 magic = hn::Set(d, 12582912.0F);
  const VF32 shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const VF32 n = hn::Sub(shifted, magic);
  // ln2 in two parts; the first has so few bits that n times the first is exact.
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

// cap * tanh(x / cap), by tanh(y) = 1 - 2 / (1 + exp(2 y)): error at most cap * 5 * 2^-24. Keeps a NaN,
// unlike Min without vectors.
HWY_INLINE VF32 SoftCap(VF32 x, float cap) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0F), two = hn::Set(d, 2.0F), largest = hn::Set(d, 88.0F);
  const VF32 argument = hn::Mul(x, hn::Set(d, 2.0F / cap));
  const VF32 power = Exp(hn::IfThenElse(hn::Gt(argument, largest), largest, argument));
  return hn::Mul(hn::Set(d, cap), hn::Sub(one, hn::Div(two, hn::Add(one, power))));
}

// Even (odd) lanes of low, then of high. Scalar target: low counts as the even lane, high as the odd lane.
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

// Unrolls a loop before register allocation: vectors that only the counter indexes never touch memory. body:
// [&](auto i) LARIAT_INLINE_BODY { ... }
template <int64_t kEnd, int64_t kFirst = 0, class Body>
HWY_INLINE void Unroll(const Body& body) {
  if constexpr (kFirst < kEnd) {
    body(std::integral_constant<int64_t, kFirst>());
    Unroll<kEnd, kFirst + 1>(body);
  }
}

// Transposes a square matrix in registers. Each of log2(lanes) rounds moves even lanes before odd lanes,
// which rotates the bits of (row, lane) by one until row and lane are exchanged.
template <int64_t kRounds = hn::MaxLanes(F32())>
HWY_INLINE void Transpose(VF32* tile) {
  constexpr int64_t kLanes = hn::MaxLanes(F32());
  if constexpr (kRounds > 1) {
    VF32 other[kLanes];
    Unroll<kLanes / 2>([&](auto i) LARIAT_INLINE_BODY {
      other[i] = EvenLanes(tile[2 * i], tile[2 * i + 1]);
      other[i + kLanes / 2] = OddLanes(tile[2 * i], tile[2 * i + 1]);
    });
    Unroll<kLanes>([&](auto i) LARIAT_INLINE_BODY { tile[i] = other[i]; });
    Transpose<kRounds / 2>(tile);
  }
}

#undef LARIAT_F16_IN_SOFTWARE
}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
