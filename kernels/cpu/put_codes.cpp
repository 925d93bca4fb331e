#include "kernels/cpu/amx_pack.h"
#include "kernels/cpu/lay_out_rows.h"
#include "kernels/quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/put_codes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

constexpr int64_t kLineWords = kQuantRows, kQuads = kQuantGroup / 4;

// Writes the lines of a plane of a group. quads: [kQuads][16 outputs] words of four codes.
template <int kBits>
HWY_INLINE void PutPlane(const uint32_t* quads, int first, uint8_t* group) {
  const QuantPlane plane{kBits, first};
  const VLU mask = hn::Set(DLU(), plane.mask() * 0x01010101U);
  for (int64_t line = 0; line < kBits; ++line) {
    auto* const to = reinterpret_cast<uint32_t*>(group + plane.line(line));
    for (int64_t lane = 0; lane < kLineWords; lane += static_cast<int64_t>(hn::Lanes(DL()))) {
      VLU bits = hn::Zero(DLU());
      for (int64_t quad = line; quad < kQuads; quad += kBits) {
        const VLU codes = hn::LoadU(DLU(), quads + quad * kLineWords + lane);
        const VLU own = hn::And(hn::ShiftRightSame(codes, first), mask);
        bits = hn::Or(bits, hn::ShiftLeftSame(own, plane.shift(quad)));
      }
      hn::StoreU(bits, DLU(), to + lane);
    }
  }
}

void PutCodes(const uint8_t* codes, const QuantLayout& layout, uint8_t* tile) {
  const int64_t columns = layout.groups() * kQuantGroup;
  HWY_ALIGN uint32_t quads[2 * kQuads][kLineWords];
  for (int64_t c = 0; c < columns; c += 2 * kQuantGroup) {
    cpu::transpose_words(codes + c, columns / 4, quads);
    for (int64_t half = 0; half < 2; ++half) {
      uint8_t* const group = tile + layout.value_at(0, c + half * kQuantGroup);
      for (const QuantPlane& plane : planes_of(layout.bits())) {
        if (plane.bits == 8) PutPlane<8>(quads[half * kQuads], plane.first, group);
        if (plane.bits == 4) PutPlane<4>(quads[half * kQuads], plane.first, group);
        if (plane.bits == 2) PutPlane<2>(quads[half * kQuads], plane.first, group);
        if (plane.bits == 1) PutPlane<1>(quads[half * kQuads], plane.first, group);
      }
    }
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(PutCodes);

namespace cpu {

void put_codes(const uint8_t* codes, const QuantLayout& layout, uint8_t* tile) {
  HWY_DYNAMIC_DISPATCH(PutCodes)(codes, layout, tile);
}

}  // namespace cpu
}  // namespace lariat
#endif
