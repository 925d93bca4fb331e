#include "kernels/cpu/quant_matmul.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/convert_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Outputs of a vector: bf16 scales in the low halves, values without zero point.
struct GroupLanes {
  HWY_ALIGN int32_t scale[kQuantRows];
  HWY_ALIGN int32_t q[kQuantGroup][kQuantRows];
};

// Largest magnitudes and the first values with them.
struct Peaks {
  VL largest, extreme;
  hn::Mask<DL> finite;
};

HWY_INLINE Peaks FindPeaks(const float (*w)[kQuantRows], int64_t lane) {
  const DL d;
  const VL most = hn::Set(d, hwy::HighestValue<float>());
  Peaks p{hn::Zero(d), hn::Zero(d), hn::Eq(hn::Zero(d), hn::Zero(d))};
  for (int64_t i = 0; i < kQuantGroup; ++i) {
    const VL value = hn::Load(d, w[i] + lane), magnitude = hn::Abs(value);
    const auto larger = hn::Gt(magnitude, p.largest);
    p.largest = hn::IfThenElse(larger, magnitude, p.largest);
    p.extreme = hn::IfThenElse(larger, value, p.extreme);
    p.finite = hn::And(p.finite, hn::Le(magnitude, most));
  }
  return p;
}

HWY_INLINE void GroupQ8(const float (*w)[kQuantRows], int64_t lane, VL largest, GroupLanes& out) {
  const DL d;
  const DLI di;
  const hn::RebindToUnsigned<DL> du;
  const auto above = hn::Add(hn::BitCast(du, hn::Div(largest, hn::Set(d, 127.0F))), hn::Set(du, 0xffffU));
  const auto scale = hn::ShiftRight<16>(above);
  hn::Store(hn::BitCast(di, scale), di, out.scale + lane);
  const VL inverse = hn::Div(hn::Set(d, 1.0F), hn::BitCast(d, hn::ShiftLeft<16>(scale)));
  for (int64_t i = 0; i < kQuantGroup; ++i) {
    const VL value = hn::Mul(hn::Load(d, w[i] + lane), inverse);
    hn::Store(hn::NearestInt(value), di, out.q[i] + lane);
  }
}

HWY_INLINE void GroupQ4(const float (*w)[kQuantRows], int64_t lane, VL extreme, GroupLanes& out) {
  const DL d;
  const DLI di;
  const auto scale = Bf16Bits(d, hn::Div(extreme, hn::Set(d, -8.0F)));
  hn::Store(hn::BitCast(di, scale), di, out.scale + lane);
  const VL inverse = hn::Div(hn::Set(d, 1.0F), hn::BitCast(d, hn::ShiftLeft<16>(scale)));
  for (int64_t i = 0; i < kQuantGroup; ++i) {
    const VLI q = hn::NearestInt(hn::Mul(hn::Load(d, w[i] + lane), inverse));
    hn::Store(hn::Min(hn::Max(q, hn::Set(di, -8)), hn::Set(di, 7)), di, out.q[i] + lane);
  }
}

// Clears almost-zero and non-finite groups.
HWY_INLINE void ClearLanes(int64_t lane, const Peaks& p, GroupLanes& out) {
  const DL d;
  const DLI di;
  const auto ordinary = hn::And(hn::Ge(p.largest, hn::Set(d, kQuantSmallest)), p.finite);
  if (hn::AllTrue(d, ordinary)) return;
  const auto keep = hn::RebindMask(di, ordinary);
  const VLI other = hn::IfThenElse(hn::RebindMask(di, p.finite), hn::Zero(di), hn::Set(di, 0x7fc0));
  hn::Store(hn::IfThenElse(keep, hn::Load(di, out.scale + lane), other), di, out.scale + lane);
  for (auto& q : out.q) hn::Store(hn::IfThenElseZero(keep, hn::Load(di, q + lane)), di, q + lane);
}

HWY_INLINE VLI Quad(const GroupLanes& group, int64_t quad, int64_t lane, int zero) {
  const DLI di;
  const auto byte = [&](int64_t i) HWY_ATTR {
    return hn::Add(hn::Load(di, group.q[4 * quad + i] + lane), hn::Set(di, zero));
  };
  const VLI low = hn::Or(byte(0), hn::ShiftLeft<8>(byte(1)));
  return hn::Or(low, hn::Or(hn::ShiftLeft<16>(byte(2)), hn::ShiftLeft<24>(byte(3))));
}

void QuantizeGroup(const float (*w)[kQuantRows], const QuantLayout& layout, uint16_t* scales,
                   uint8_t* values) {
  const DLI di;
  GroupLanes group;
  auto* words = reinterpret_cast<int32_t*>(values);
  for (int64_t lane = 0; lane < kQuantRows; lane += static_cast<int64_t>(hn::Lanes(di))) {
    const Peaks peaks = FindPeaks(w, lane);
    if (layout.format.dtype == DType::kQ8) {
      GroupQ8(w, lane, peaks.largest, group);
    } else {
      GroupQ4(w, lane, peaks.extreme, group);
    }
    ClearLanes(lane, peaks, group);
    for (int64_t quad = 0; quad < layout.group_bytes() / (4 * kQuantRows); ++quad) {
      VLI bytes = Quad(group, quad, lane, layout.zero());
      if (layout.format.dtype == DType::kQ4) {
        bytes = hn::Or(bytes, hn::ShiftLeft<4>(Quad(group, quad + 4, lane, layout.zero())));
      }
      hn::StoreU(bytes, di, words + quad * kQuantRows + lane);
    }
  }
  for (int64_t r = 0; r < kQuantRows; ++r) scales[r] = static_cast<uint16_t>(group.scale[r]);
}

// w[input][output]
void QuantizeBlock(const float (*w)[kQuantRows], const QuantLayout& layout, uint8_t* block) {
  for (int64_t g = 0; g < layout.block() / kQuantGroup; ++g) {
    QuantizeGroup(w + g * kQuantGroup, layout, reinterpret_cast<uint16_t*>(block) + g * kQuantRows,
                  block + layout.scale_bytes() + g * layout.group_bytes());
  }
}

// Quantizes a group of x to q and returns the scale. sums: see QuantRows.
HWY_INLINE float QuantizeInputs(const float* from, int8_t* HWY_RESTRICT q, int32_t* HWY_RESTRICT sums) {
  const DL d;
  const DLI di;
  const hn::Rebind<int8_t, DL> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const VL most = hn::Set(d, hwy::HighestValue<float>());
  VL largest = hn::Zero(d);
  auto finite = hn::Eq(largest, largest);
  for (int64_t i = 0; i < kQuantGroup; i += lanes) {
    const VL magnitude = hn::Abs(hn::LoadU(d, from + i));
    finite = hn::And(finite, hn::Le(magnitude, most));
    largest = hn::Max(largest, magnitude);
  }
  const bool all_finite = hn::AllTrue(d, finite);
  const float peak = all_finite ? hn::GetLane(hn::MaxOfLanes(d, largest)) : 0.0F;
  const float inverse = peak < kQuantSmallest ? 0.0F : 127 / peak;
  int32_t halves[2];
  for (int64_t half = 0; half < 2; ++half) {
    VLI sum = hn::Zero(di);
    for (int64_t i = half * kQuantGroup / 2; i < (half + 1) * kQuantGroup / 2; i += lanes) {
      const VL value = all_finite ? hn::LoadU(d, from + i) : hn::Zero(d);
      const VLI integer = hn::NearestInt(hn::Mul(value, hn::Set(d, inverse)));
      sum = hn::Add(sum, integer);
      hn::StoreU(hn::DemoteTo(d8, integer), d8, q + i);
    }
    halves[half] = hn::GetLane(hn::SumOfLanes(di, sum));
  }
  sums[0] = halves[0] + halves[1];
  sums[1] = halves[1];
  if (!all_finite) return std::numeric_limits<float>::quiet_NaN();
  return inverse == 0 ? 0.0F : peak / 127;
}

// Quantizes one row of x to rows [row, row + to.parts) of `to`; columns after `cols` are zero.
void QuantizeRow(const float* HWY_RESTRICT x, int64_t cols, const cpu::QuantRows& to, int64_t row) {
  const DL d;
  const hn::Rebind<int8_t, DL> d8;
  for (int64_t g = 0; g < to.groups; ++g) {
    HWY_ALIGN float rest[kQuantGroup] = {};
    const float* from = x + g * kQuantGroup;
    if (const int64_t count = cols - g * kQuantGroup; count < kQuantGroup) {
      if (count > 0) std::copy(from, from + count, rest);
      from = rest;
    }
    for (int64_t part = 0; part < to.parts; ++part, from = rest) {
      const int64_t at = (row + part) * to.groups + g;
      int8_t* const q = to.values + at * kQuantGroup;
      const float scale = to.scales[at] = QuantizeInputs(from, q, to.sums + 2 * at);
      for (int64_t i = 0; part + 1 < to.parts && i < kQuantGroup; i += static_cast<int64_t>(hn::Lanes(d))) {
        const VL value = hn::ConvertTo(d, hn::PromoteTo(DLI(), hn::LoadU(d8, q + i)));
        hn::Store(hn::NegMulAdd(value, hn::Set(d, scale), hn::LoadU(d, from + i)), d, rest + i);
      }
    }
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(QuantizeBlock);
HWY_EXPORT(QuantizeRow);

namespace cpu {

void quantize_tiles(const Matrix& src, const Matrix& dst, int64_t first, int64_t last) {
  const QuantLayout layout(dst);
  alignas(64) float rows[kQuantRows][kQuantBlock], transposed[kQuantBlock][kQuantRows];
  for (int64_t tile = first; tile < last; ++tile) {
    auto* to = static_cast<uint8_t*>(dst.data) + tile * layout.tile_bytes();
    const int64_t height = std::min(kQuantRows, src.rows - tile * kQuantRows);
    for (int64_t col = 0; col < src.cols; col += kQuantBlock, to += layout.block_bytes()) {
      const int64_t width = std::min(kQuantBlock, src.cols - col);
      if (height < kQuantRows || width < kQuantBlock) std::memset(rows, 0, sizeof(rows));
      const Matrix from = src.row_range(tile * kQuantRows, height).column_range(col, width);
      convert_rows(from, {rows[0], DType::kF32, height, width, kQuantBlock});
      for (int64_t r = 0; r < kQuantRows; ++r) {
        for (int64_t c = 0; c < kQuantBlock; ++c) transposed[c][r] = rows[r][c];
      }
      HWY_DYNAMIC_DISPATCH(QuantizeBlock)(transposed, layout, to);
    }
  }
}

QuantRows::QuantRows(void* memory, int64_t x_rows, int64_t groups_, int64_t parts_)
    : rows(x_rows * std::max<int64_t>(parts_, 1)), groups(groups_), parts(parts_) {
  if (parts == 0) {
    floats = static_cast<float*>(memory);
    return;
  }
  values = static_cast<int8_t*>(memory);
  scales = reinterpret_cast<float*>(values + rows * columns());
  sums = reinterpret_cast<int32_t*>(scales + rows * groups);
}

size_t QuantRows::bytes(int64_t x_rows, int64_t groups, int64_t parts) {
  return static_cast<size_t>(x_rows * groups * (parts > 0 ? parts * (kQuantGroup + 12) : 4 * kQuantGroup));
}

void quantize_rows(const Matrix& x, const QuantRows& to, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t) {
    if (to.floats) {
      float* const row = to.floats + t * to.columns();
      std::fill(std::copy(x.f32(t), x.f32(t) + x.cols, row), row + to.columns(), 0.0F);
      continue;
    }
    HWY_DYNAMIC_DISPATCH(QuantizeRow)(x.f32(t), x.cols, to, t * to.parts);
  }
}

}  // namespace cpu
}  // namespace lariat
#endif
