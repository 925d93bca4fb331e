// Vectors of quantized weights; lanes are outputs. Included once per instruction set.
#if defined(LARIAT_KERNELS_CPU_QUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_QUANT_INL_H_
#undef LARIAT_KERNELS_CPU_QUANT_INL_H_
#else
#define LARIAT_KERNELS_CPU_QUANT_INL_H_
#endif

#include <array>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// All sums use the scalar version's order.
using DL = hn::CappedTag<float, kQuantRows>;
using VL = hn::Vec<DL>;
using DLI = hn::RebindToSigned<DL>;
using VLI = hn::Vec<DLI>;
using DLU = hn::RebindToUnsigned<DL>;
using VLU = hn::Vec<DLU>;

template <bool kMinimum>
HWY_INLINE VL ScaleLanes(ScaleType type, const uint8_t* inner, const uint8_t* outer, int64_t lane) {
  const DL d;
  const auto at = [lane]<class T>(const uint8_t* from, T) { return reinterpret_cast<const T*>(from) + lane; };
  switch (type) {
    case ScaleType::kBF16:
      return LoadF32(d, at(inner, hwy::bfloat16_t()));
    case ScaleType::kF16:
      return LoadF32(d, at(inner, hwy::float16_t()));
    case ScaleType::kF32:
      return LoadF32(d, at(inner, 0.0F));
    default:
      break;
  }
  auto small = hn::PromoteTo(DLI(), hn::LoadU(hn::Rebind<int8_t, DL>(), at(inner, int8_t{})));
  if (type == ScaleType::kPairs)
    small = hn::And(hn::ShiftRight < kMinimum ? 4 : 0 > (small), hn::Set(DLI(), 15));
  return hn::Mul(LoadF32(d, at(outer, hwy::float16_t())), hn::ConvertTo(d, small));
}

struct BlockScales {
  VL scale, minimum;
};
HWY_INLINE BlockScales ScalesAt(const cpu::QuantBlock& b, const uint8_t* block, int64_t input, int64_t lane) {
  const uint8_t* inner = block + b.scales_at(input);
  const VL scale = ScaleLanes<false>(b.scales, inner, block, lane);
  if (!b.minimum) return {scale, hn::Zero(DL())};
  return {scale, ScaleLanes<true>(b.scales, inner + b.inner_bytes, block + 2 * kQuantRows, lane)};
}

// Decoders: at<i>(quad) decodes byte i of each lane.
template <int kBits_>
struct LinearValues {
  static constexpr int kBits = kBits_;
  VL zero;
  template <int i>
  HWY_INLINE VL at(VLU quad) const {
    VLU code = hn::ShiftRight<8 * i>(quad);
    if constexpr (i < 3) code = hn::And(code, hn::Set(DLU(), 0xff));
    return hn::Sub(hn::ConvertTo(DL(), hn::BitCast(DLI(), code)), zero);
  }
};

// Moves sign, exponent and mantissa to their f32 positions; the exponents differ by 120.
struct E4M3Values {
  static constexpr int kBits = 8;
  template <int i>
  HWY_INLINE VL at(VLU quad) const {
    const VLI spread = hn::ShiftRight<4>(hn::BitCast(DLI(), hn::ShiftLeft<24 - 8 * i>(quad)));
    const VLI bits = hn::And(spread, hn::Set(DLI(), static_cast<int32_t>(0x87f00000U)));
    return hn::Mul(hn::BitCast(DL(), bits), hn::Set(DL(), 0x1p120F));
  }
};

struct TableValues {
  static constexpr int kBits = 4;
  static constexpr size_t kLanes = hn::MaxLanes(DL());
  const float* table;  // 16 values
  template <int i>
  HWY_INLINE VL at(VLU quad) const {
    const DL d;
    const VLU code = hn::ShiftRight<8 * i>(quad);
    const auto low = [&](uint32_t mask) HWY_ATTR { return hn::And(code, hn::Set(DLU(), mask)); };
#if HWY_ARCH_X86
    if constexpr (kLanes == 16) {
      return hn::TableLookupLanes(hn::LoadU(d, table), hn::IndicesFromVec(d, low(15)));
    } else if constexpr (kLanes == 8) {  // the highest bit of a lane selects the half
      const auto eight = hn::IndicesFromVec(d, low(7));
      const auto high = hn::MaskFromVec(hn::BitCast(d, hn::ShiftLeft<28 - 8 * i>(quad)));
      return hn::IfThenElse(high, hn::TableLookupLanes(hn::LoadU(d, table + 8), eight),
                            hn::TableLookupLanes(hn::LoadU(d, table), eight));
    }
#endif
    return hn::GatherIndex(d, table, hn::BitCast(DLI(), low(15)));
  }
};

// Calls body(std::integral_constant<int, bits>()).
template <class Body>
HWY_INLINE void WithBits(int bits, const Body& body) {
  switch (bits) {
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    case 5:
      return body(std::integral_constant<int, 5>());
    case 6:
      return body(std::integral_constant<int, 6>());
    default:
      return body(std::integral_constant<int, 8>());
  }
}

template <class Body>
HWY_INLINE void WithValues(const cpu::QuantBlock& b, const Body& body) {
  if (b.code == Code::kE4M3) return body(E4M3Values());
  if (b.has_table()) return body(TableValues{code_table(b.code).data()});
  const VL zero = hn::Set(DL(), static_cast<float>(b.zero));
  WithBits(b.bits, [&](auto bits) HWY_ATTR { body(LinearValues<bits>{zero}); });
}

// Values of a quad of a group, for the outputs at `words`.
template <int kBits>
HWY_INLINE VLU QuadAt(const uint32_t* words, int64_t quad) {
  constexpr std::array<QuantPlane, 2> kPlanes = planes_of(kBits);
  const auto bits = [&](QuantPlane plane) HWY_ATTR {
    const VLU line = hn::LoadU(DLU(), words + plane.line(quad) / 4);
    return hn::And(hn::ShiftRightSame(line, plane.shift(quad)), hn::Set(DLU(), plane.mask() * 0x01010101U));
  };
  const VLU low = bits(kPlanes[0]);
  if constexpr (kPlanes[1].bits == 0) {
    return low;
  } else {
    return hn::Or(low, hn::ShiftLeft<kPlanes[1].first>(bits(kPlanes[1])));
  }
}

// Calls body(quad, half, codes) for quad `quad` of both halves of a group and the outputs at `words`; half: a
// compile-time constant.
template <int kBits, class Body>
HWY_INLINE void ForHalves(const uint32_t* words, int64_t quad, const Body& body) {
  constexpr std::integral_constant<int, 0> kFirst;
  constexpr std::integral_constant<int, 1> kSecond;
  constexpr int64_t kQuads = kQuantGroup / 8;
  if constexpr (kBits == 4) {
    const VLU bytes = hn::LoadU(DLU(), words + quad * kQuantRows);
    const VLU nibble = hn::Set(DLU(), 0x0f0f0f0fU);
    body(quad, kFirst, hn::And(bytes, nibble));
    body(quad + kQuads, kSecond, hn::And(hn::ShiftRight<4>(bytes), nibble));
  } else if constexpr (kBits == 8) {
    body(quad, kFirst, hn::LoadU(DLU(), words + quad * kQuantRows));
    body(quad + kQuads, kSecond, hn::LoadU(DLU(), words + (quad + kQuads) * kQuantRows));
  } else {
    body(quad, kFirst, QuadAt<kBits>(words, quad));
    body(quad + kQuads, kSecond, QuadAt<kBits>(words, quad + kQuads));
  }
}

// Calls store(first input of four, first output, four vectors of weights) for a group of a block.
template <class Store>
HWY_INLINE void ForWeights(const cpu::QuantBlock& b, const uint8_t* block, int64_t group,
                           const Store& store) {
  const auto* words = reinterpret_cast<const uint32_t*>(block + b.scale_bytes + group * b.group_bytes);
  WithValues(b, [&](const auto& values) HWY_ATTR {
    for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(DL()))) {
      const int64_t first = group * kQuantGroup;
      const BlockScales halves[2] = {ScalesAt(b, block, first, lane),
                                     ScalesAt(b, block, first + kQuantGroup / 2, lane)};
      const auto four = [&](int64_t quad, auto half, VLU codes) LARIAT_INLINE_BODY {
        const auto weight = [&](VL value) HWY_ATTR {
          return b.minimum ? hn::MulAdd(value, halves[half].scale, halves[half].minimum)
                           : hn::Mul(value, halves[half].scale);
        };
        store(4 * quad, lane, weight(values.template at<0>(codes)), weight(values.template at<1>(codes)),
              weight(values.template at<2>(codes)), weight(values.template at<3>(codes)));
      };
      for (int64_t quad = 0; quad < kQuantGroup / 8; ++quad) {
        ForHalves<std::decay_t<decltype(values)>::kBits>(words + lane, quad, four);
      }
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
