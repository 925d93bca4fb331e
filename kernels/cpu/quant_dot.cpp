#include <algorithm>

#include "kernels/cpu/quant_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quant_dot.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Without an instruction for bytes: a group of a tile becomes f32 once, for all rows of x. Its sums are
// integers below 2^24, so f32 holds them exactly, and the result is that of the integer kernel.
using DL = hn::CappedTag<float, kQuantRows>;
using VL = hn::Vec<DL>;

struct WideGroup {
  HWY_ALIGN float q[kQuantGroup][kQuantRows];  // without the zero
  HWY_ALIGN float scale[kQuantRows];
};

// Inputs [4 quad, 4 quad + 4) of 32-bit lanes that hold them in their bytes.
template <class VU>
HWY_INLINE void StoreQuad(VU bytes, int64_t quad, int64_t lane, int zero, WideGroup& to) {
  const DL d;
  const hn::RebindToSigned<DL> di;
  const hn::RebindToUnsigned<DL> du;
  for (int64_t i = 0; i < 4; ++i, bytes = hn::ShiftRight<8>(bytes)) {
    const auto byte = hn::BitCast(di, hn::And(bytes, hn::Set(du, 0xff)));
    hn::Store(hn::ConvertTo(d, hn::Sub(byte, hn::Set(di, zero))), d, to.q[4 * quad + i] + lane);
  }
}

HWY_INLINE void Widen(const QuantLayout& layout, const uint8_t* block, int64_t half, WideGroup& to) {
  const DL d;
  const hn::RebindToUnsigned<DL> du;
  const auto* scales = reinterpret_cast<const hwy::bfloat16_t*>(block) + half * kQuantRows;
  const auto* words =
      reinterpret_cast<const uint32_t*>(block + layout.scale_bytes() + half * layout.group_bytes());
  for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
    hn::Store(LoadF32(d, scales + lane), d, to.scale + lane);
    for (int64_t quad = 0; quad < layout.group_bytes() / (4 * kQuantRows); ++quad) {
      const auto bytes = hn::LoadU(du, words + quad * kQuantRows + lane);
      if (layout.dtype == DType::kQ8) {
        StoreQuad(bytes, quad, lane, layout.zero(), to);
      } else {
        const auto nibble = hn::Set(du, 0x0f0f0f0fU);
        StoreQuad(hn::And(bytes, nibble), quad, lane, layout.zero(), to);
        StoreQuad(hn::And(hn::ShiftRight<4>(bytes), nibble), quad + 4, lane, layout.zero(), to);
      }
    }
  }
}

// Adds a group's part to the totals of one row of x.
HWY_INLINE void AddGroup(const WideGroup& w, const float* HWY_RESTRICT x, float x_scale,
                         float* HWY_RESTRICT total) {
  const DL d;
  for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(d))) {
    VL even = hn::Zero(d), odd = hn::Zero(d);
    for (int64_t i = 0; i < kQuantGroup; i += 2) {
      even = hn::MulAdd(hn::Set(d, x[i]), hn::Load(d, w.q[i] + lane), even);
      odd = hn::MulAdd(hn::Set(d, x[i + 1]), hn::Load(d, w.q[i + 1] + lane), odd);
    }
    const VL scale = hn::Mul(hn::Load(d, w.scale + lane), hn::Set(d, x_scale));
    hn::Store(hn::MulAdd(hn::Add(even, odd), scale, hn::Load(d, total + lane)), d, total + lane);
  }
}

void DotTile(const cpu::QuantTask& task, int64_t tile) {
  const F32 d;
  const hn::Rebind<int8_t, F32> d8;
  const hn::RebindToSigned<F32> di;
  const QuantLayout layout(task.w);
  const auto* block = static_cast<const uint8_t*>(task.w.data) + tile * layout.tile_bytes();
  HWY_ALIGN float total[cpu::kMaxQuantRows][kQuantRows] = {};
  WideGroup group;
  for (int64_t g = 0; g < task.x.groups(); ++g) {
    Widen(layout, block, g % 2, group);
    if (g % 2 == 1) block += layout.block_bytes();
    for (int64_t a = 0; a < task.rows; ++a) {
      const int64_t row = task.first_row + a;
      const int8_t* q = task.x.values + row * task.x.columns() + g * kQuantGroup;
      HWY_ALIGN float x[kQuantGroup];
      for (int64_t i = 0; i < kQuantGroup; i += static_cast<int64_t>(hn::Lanes(d))) {
        hn::Store(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, q + i))), d, x + i);
      }
      AddGroup(group, x, task.x.scales[row * task.x.groups() + g], total[a]);
    }
  }
  const int64_t first = tile * kQuantRows, count = std::min(kQuantRows, task.w.rows - first);
  for (int64_t a = 0; a < task.rows; ++a) {
    std::copy(total[a], total[a] + count, task.out.f32(task.first_row + a) + first);
  }
}

void DotTiles(const cpu::QuantTask& task) {
  for (int64_t b = 0; b < task.tiles; ++b) DotTile(task, task.first_tile + b * task.tile_distance);
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
