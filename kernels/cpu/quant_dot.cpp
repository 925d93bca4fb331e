#include <algorithm>
#include <cstring>

#include "kernels/cpu/quant_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quant_dot.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Without an instruction for bytes: the four bytes of a lane become two pairs of 16 bits, whose products are
// added in the lane. Sums are as exact as those of VPDPBUSD, so that the result is the same.
using DL = hn::CappedTag<float, kQuantRows>;
using DI = hn::RebindToSigned<DL>;
using VI = hn::Vec<DI>;

// One group of some rows of x: inputs 0 and 2 of each quad, and 1 and 3, as pairs of 16 bits.
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

// sum + the two products of signed 16-bit values in each lane.
HWY_INLINE VI AddPairProducts(VI a, VI b, VI sum) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
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

// Four unsigned bytes of each lane times the quad of inputs of every row.
template <int64_t kRows, class VU>
HWY_INLINE void MultiplyQuad(VU bytes, const GroupInputs& x, int64_t quad, VI* sum) {
  const hn::RebindToUnsigned<DL> du;
  const auto low = hn::Set(du, 0x00ff00ffU);
  const VI even = hn::BitCast(DI(), hn::And(bytes, low));
  const VI odd = hn::BitCast(DI(), hn::And(hn::ShiftRight<8>(bytes), low));
  Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
    sum[a] = AddPairProducts(even, PairAt(x.even[a], quad), sum[a]);
    sum[a] = AddPairProducts(odd, PairAt(x.odd[a], quad), sum[a]);
  });
}

// The sums of one group for a vector of outputs, added to sum.
template <DType kType, int64_t kRows>
HWY_INLINE void MultiplyGroup(const uint32_t* words, const GroupInputs& x, VI* sum) {
  const hn::RebindToUnsigned<DL> du;
  constexpr int64_t kQuads = kQuantGroup / 4;
  if constexpr (kType == DType::kQ8) {
    for (int64_t quad = 0; quad < kQuads; ++quad) {
      MultiplyQuad<kRows>(hn::LoadU(du, words + quad * kQuantRows), x, quad, sum);
    }
  } else {
    const auto nibble = hn::Set(du, 0x0f0f0f0fU);
    for (int64_t quad = 0; quad < kQuads / 2; ++quad) {
      const auto bytes = hn::LoadU(du, words + quad * kQuantRows);
      MultiplyQuad<kRows>(hn::And(bytes, nibble), x, quad, sum);
      MultiplyQuad<kRows>(hn::And(hn::ShiftRight<4>(bytes), nibble), x, quad + kQuads / 2, sum);
    }
  }
}

template <DType kType, int64_t kRows>
HWY_NOINLINE void DotTile(const cpu::QuantTask& task, int64_t tile) {
  const DL d;
  const QuantLayout layout(task.w);
  const int64_t groups = task.x.groups();
  const auto* block = static_cast<const uint8_t*>(task.w.data) + tile * layout.tile_bytes();
  HWY_ALIGN float total[kRows][kQuantRows] = {};
  GroupInputs inputs;
  for (int64_t g = 0; g < groups; ++g, block += g % 2 == 0 ? layout.block_bytes() : 0) {
    const auto* scales = reinterpret_cast<const hwy::bfloat16_t*>(block) + g % 2 * kQuantRows;
    const auto* words =
        reinterpret_cast<const uint32_t*>(block + layout.scale_bytes() + g % 2 * layout.group_bytes());
    for (int64_t a = 0; a < kRows; ++a) {
      inputs.Set(a, task.x.values + (task.first_row + a) * task.x.columns() + g * kQuantGroup);
    }
    for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
      VI sum[kRows];
      Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
        sum[a] = hn::Set(DI(), task.x.offsets[(task.first_row + a) * groups + g]);
      });
      MultiplyGroup<kType, kRows>(words + lane, inputs, sum);
      const auto scale = LoadF32(d, scales + lane);
      Unroll<kRows>([&](auto a) LARIAT_INLINE_BODY {
        const auto both = hn::Mul(scale, hn::Set(d, task.x.scales[(task.first_row + a) * groups + g]));
        float* to = total[a] + lane;
        hn::Store(hn::MulAdd(hn::ConvertTo(d, sum[a]), both, hn::Load(d, to)), d, to);
      });
    }
  }
  const int64_t first = tile * kQuantRows, count = std::min(kQuantRows, task.w.rows - first);
  for (int64_t a = 0; a < kRows; ++a) {
    std::copy(total[a], total[a] + count, task.out.f32(task.first_row + a) + first);
  }
}

void DotTiles(const cpu::QuantTask& task) {
  with_count<cpu::kMaxQuantRows>(task.rows, [&](auto rows) HWY_ATTR {
    for (int64_t b = 0; b < task.tiles; ++b) {
      const int64_t tile = task.first_tile + b * task.tile_distance;
      task.w.dtype == DType::kQ8 ? DotTile<DType::kQ8, rows>(task, tile)
                                 : DotTile<DType::kQ4, rows>(task, tile);
    }
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
