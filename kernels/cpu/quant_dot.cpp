#include <algorithm>
#include <cstring>

#include "kernels/cpu/quant_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quant_dot.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Without byte dot products: 16-bit pairs, whose products are added in the lane. All sums are exact and equal
// VPDPBUSD's.
using DI = DLI;
using VI = VLI;

// Inputs 0 and 2, and inputs 1 and 3, of each quad as 16-bit pairs.
struct GroupInputs {
  HWY_ALIGN int16_t even[cpu::kMaxQuantRows][kQuantGroup / 2], odd[cpu::kMaxQuantRows][kQuantGroup / 2];

  HWY_INLINE void Set(int64_t row, const int8_t* inputs) {
    const hn::CappedTag<int16_t, kQuantGroup / 2> d;
    for (int64_t i = 0; i < kQuantGroup / 2; i += static_cast<int64_t>(hn::Lanes(d))) {
      const auto pairs = hn::LoadU(d, reinterpret_cast<const int16_t*>(inputs) + i);
      hn::Store(hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs)), d, even[row] + i);
      hn::Store(hn::ShiftRight<8>(pairs), d, odd[row] + i);
    }
  }
};

HWY_INLINE VI AddPairProducts(VI a, VI b, VI sum) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  const hn::Repartition<int16_t, DI> d16;  // VPMADDWD: neighbours stay in their lane
  VI none = hn::Zero(DI());
  return hn::ReorderWidenMulAccumulate(DI(), hn::BitCast(d16, a), hn::BitCast(d16, b), sum, none);
#else
  const auto low = [](VI pair) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(pair)); };
  const VI lows = hn::Mul(low(a), low(b));
  return hn::Add(sum, hn::Add(lows, hn::Mul(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b))));
#endif
}

HWY_INLINE VI PairAt(const int16_t* pairs, int64_t quad) {
  int32_t pair;
  std::memcpy(&pair, pairs + 2 * quad, sizeof(pair));
  return hn::Set(DI(), pair);
}

template <int64_t kRows>
HWY_INLINE void MultiplyQuad(VLU bytes, const GroupInputs& x, int64_t quad, VI* sum) {
  const VLU low = hn::Set(DLU(), 0x00ff00ffU);
  const VI even = hn::BitCast(DI(), hn::And(bytes, low));
  const VI odd = hn::BitCast(DI(), hn::And(hn::ShiftRight<8>(bytes), low));
  Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
    sum[a] = AddPairProducts(even, PairAt(x.even[a], quad), sum[a]);
    sum[a] = AddPairProducts(odd, PairAt(x.odd[a], quad), sum[a]);
  });
}

// Values of nibbles, plus 128.
HWY_INLINE VLU LookUp(const cpu::QuantBlock& b, VLU nibbles) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t bytes = hn::GetLane(nibbles), values = 0;
  for (int i = 0; i < 32; i += 8) {
    values |= static_cast<uint32_t>(b.table[bytes >> i & 15] + 128) << i;
  }
  return hn::Set(DLU(), values);
#else
  const hn::Repartition<uint8_t, DLU> d8;
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(b.table.data()));
  const auto found = hn::TableLookupBytes(table, hn::BitCast(d8, nibbles));
  return hn::BitCast(DLU(), hn::Xor(found, hn::Set(d8, 128)));
#endif
}

template <class K, int64_t kRows>
HWY_INLINE void MultiplyGroup(const cpu::QuantBlock& b, const uint32_t* words, const GroupInputs& x, int part,
                              VI* sum) {
  constexpr int64_t kQuads = kQuantGroup / 4;
  if constexpr (K::kBits == 8) {
    constexpr int64_t kSome = kQuads / K::kParts;
    for (int64_t quad = part * kSome; quad < (part + 1) * kSome; ++quad) {
      MultiplyQuad<kRows>(hn::LoadU(DLU(), words + quad * kQuantRows), x, quad, sum);
    }
  } else {
    const auto values = [&](VLU bytes) HWY_ATTR {
      const VLU nibbles = hn::And(bytes, hn::Set(DLU(), 0x0f0f0f0fU));
      return K::kTable ? LookUp(b, nibbles) : nibbles;
    };
    for (int64_t quad = 0; quad < kQuads / 2; ++quad) {
      const VLU bytes = hn::LoadU(DLU(), words + quad * kQuantRows);
      if (K::kParts == 1 || part == 0) MultiplyQuad<kRows>(values(bytes), x, quad, sum);
      if (K::kParts == 1 || part == 1) {
        MultiplyQuad<kRows>(values(hn::ShiftRight<4>(bytes)), x, quad + kQuads / 2, sum);
      }
    }
  }
}

template <class K, int64_t kRows>
HWY_NOINLINE void DotTile(const cpu::QuantTask& task, const cpu::QuantBlock& b, int64_t tile) {
  const DL d;
  const QuantLayout layout(task.w);
  const int zero = K::kTable ? 128 : b.zero;
  const auto* block = static_cast<const uint8_t*>(task.w.data) + tile * layout.tile_bytes();
  HWY_ALIGN float total[kRows][kQuantRows] = {};
  GroupInputs inputs;
  for (int64_t g = 0, place = 0; g < layout.groups(); ++g, ++place) {
    if (place == b.groups) block += b.block_bytes, place = 0;
    const auto* words = reinterpret_cast<const uint32_t*>(block + b.scale_bytes + place * b.group_bytes);
    for (int64_t a = 0; a < kRows; ++a) {
      inputs.Set(a, task.x.values + (task.first_row + a) * task.x.columns() + g * kQuantGroup);
    }
    for (int part = 0; part < K::kParts; ++part) {
      int32_t of_x[kRows];
      for (int64_t a = 0; a < kRows; ++a) {
        const int32_t* sums = task.x.sums + 2 * ((task.first_row + a) * task.x.groups + g);
        of_x[a] = K::of_x(sums, part);
      }
      for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
        VI sum[kRows];
        Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY { sum[a] = hn::Set(DI(), -zero * of_x[a]); });
        MultiplyGroup<K, kRows>(b, words + lane, inputs, part, sum);
        const BlockScales at = ScalesAt(b, block, place * kQuantGroup + part * kQuantGroup / 2, lane);
        Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
          const float x_scale = task.x.scales[(task.first_row + a) * task.x.groups + g];
          const auto both = hn::Mul(at.scale, hn::Set(d, x_scale));
          float* to = total[a] + lane;
          VL whole = hn::MulAdd(hn::ConvertTo(d, sum[a]), both, hn::Load(d, to));
          if (b.minimum) {
            whole = hn::MulAdd(at.minimum, hn::Set(d, x_scale * static_cast<float>(of_x[a])), whole);
          }
          hn::Store(whole, d, to);
        });
      }
    }
  }
  for (int64_t a = 0; a < kRows; ++a) task.store(a, tile * kQuantRows, total[a]);
}

void DotTiles(const cpu::QuantTask& task) {
  cpu::with_kind<false>(cpu::QuantBlock(task.w), [&]<class K>(const cpu::QuantBlock& b, K) HWY_ATTR {
    with_count<cpu::kMaxQuantRows>(task.rows, [&](auto rows) HWY_ATTR {
      for (int64_t i = 0; i < task.tiles; ++i) {
        DotTile<K, rows>(task, b, task.first_tile + i * task.tile_distance);
      }
    });
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(DotTiles);

namespace cpu {

void quant_dot(const QuantTask& task) { HWY_DYNAMIC_DISPATCH(DotTiles)(task); }

}  // namespace cpu
}  // namespace lariat
#endif
