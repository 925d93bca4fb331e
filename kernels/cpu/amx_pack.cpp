#include "kernels/cpu/amx_pack.h"

#include <algorithm>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/amx_pack.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {
using cpu::kTileBytes;
using cpu::kTileColumns;
using cpu::kTileRows;

using VU32 = hn::Vec<hn::RebindToUnsigned<F32>>;
constexpr int64_t kTileLanes = hn::MaxLanes(F32());

void TransposeWords(const void* from, int64_t from_stride, void* to) {
  const F32 d;
  for (int64_t r = 0; r < kTileRows; r += kTileLanes) {
    for (int64_t c = 0; c < kTileRows; c += kTileLanes) {
      const float* words = static_cast<const float*>(from) + r * from_stride + c;
      VF32 block[kTileLanes];
      Unroll<kTileLanes>([&](auto i)
                             LARIAT_INLINE_BODY { block[i] = hn::LoadU(d, words + i * from_stride); });
      Transpose(block);
      float* row = static_cast<float*>(to) + c * kTileRows + r;
      Unroll<kTileLanes>([&](auto i) LARIAT_INLINE_BODY { hn::Store(block[i], d, row + i * kTileRows); });
    }
  }
}

template <typename T>
void PackRow(const T* from, int64_t cols, char* tile, int64_t tile_stride) {
  const F32 d;
  for (int64_t first = 0; first < cols; first += kTileColumns, tile += tile_stride) {
    const int64_t count = std::min(kTileColumns, cols - first);
    for (int64_t i = 0; i < kTileColumns; i += kTileLanes) {
      const int64_t left = std::clamp<int64_t>(count - i, 0, kTileLanes);
      const T* p = from + first + std::min(i, count);
      StoreF32(d, LoadUpTo(p, static_cast<size_t>(left)), reinterpret_cast<hwy::bfloat16_t*>(tile) + i);
    }
  }
}

void PackRows(const Matrix& x, char* to, int64_t tile_stride, int64_t row_stride) {
  WithDType(x.data, x.dtype, [&](const auto* values) HWY_ATTR {
    for (int64_t r = 0; r < x.rows; ++r) {
      PackRow(values + r * x.stride, x.cols, to + r * row_stride, tile_stride);
    }
  });
}

// Two of a lane's four bytes, from bit `shift` on, less their zero: times the scale, a pair of bf16.
HWY_INLINE VU32 WeightPair(VU32 bytes, int shift, VF32 zero, VF32 scale) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  const VU32 low = hn::Set(du, 0xff), first = hn::ShiftRightSame(bytes, shift);
  const VF32 a = hn::ConvertTo(d, hn::BitCast(di, hn::And(first, low)));
  const VF32 b = hn::ConvertTo(d, hn::BitCast(di, hn::And(hn::ShiftRight<8>(first), low)));
  // Integers of 8 bits times a scale of 8 are exact in f32, so that only the rounding to bf16 loses anything.
  const VU32 even = Bf16Bits(d, hn::Mul(hn::Sub(a, zero), scale));
  const VU32 odd = Bf16Bits(d, hn::Mul(hn::Sub(b, zero), scale));
  return hn::Or(even, hn::ShiftLeft<16>(odd));
}

void DequantizeTile(DType dtype, const void* scales, const void* values, void* to) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const QuantLayout layout(dtype, 0, 0);
  const VF32 zero = hn::Set(d, static_cast<float>(layout.zero()));
  const int64_t vectors = layout.group_bytes() / (4 * kQuantRows);  // of four inputs: all of them, or half
  const auto* words = static_cast<const uint32_t*>(values);
  auto* pairs = static_cast<uint32_t*>(to);
  for (int64_t row = 0; row < kQuantRows; row += kTileLanes) {
    const VF32 scale = LoadF32(d, static_cast<const hwy::bfloat16_t*>(scales) + row);
    for (int64_t v = 0; v < vectors; ++v) {
      const VU32 bytes = hn::LoadU(du, words + v * kQuantRows + row);
      const auto store = [&](VU32 quad, int64_t at) HWY_ATTR {
        hn::StoreU(WeightPair(quad, 0, zero, scale), du, pairs + 2 * at * kQuantRows + row);
        hn::StoreU(WeightPair(quad, 16, zero, scale), du, pairs + (2 * at + 1) * kQuantRows + row);
      };
      if (dtype == DType::kQ8) {
        store(bytes, v);
      } else {
        const VU32 nibble = hn::Set(du, 0x0f0f0f0fU);
        store(hn::And(bytes, nibble), v);
        store(hn::And(hn::ShiftRight<4>(bytes), nibble), v + vectors);
      }
    }
  }
}

void StoreTiles(const char* tiles, const Matrix& out) {
  const F32 d;
  const auto ends = reinterpret_cast<uintptr_t>(out.data) | static_cast<uintptr_t>(out.stride * 4);
  const bool lines = out.cols == 2 * kTileRows && ends % 64 == 0;
  for (int64_t r = 0; r < out.rows; ++r) {
    const char* row = tiles + r / kTileRows * 2 * kTileBytes + r % kTileRows * 64;
    for (int64_t first = 0; first < out.cols; first += kTileRows, row += kTileBytes) {
      const auto* from = reinterpret_cast<const float*>(row);
      float* to = out.f32(r) + first;
      const int64_t count = std::min(kTileRows, out.cols - first);
      if (lines) {
        for (int64_t i = 0; i < kTileRows; i += kTileLanes) hn::Stream(hn::Load(d, from + i), d, to + i);
      } else {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      }
    }
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(TransposeWords);
HWY_EXPORT(PackRows);
HWY_EXPORT(DequantizeTile);
HWY_EXPORT(StoreTiles);

namespace cpu {

void transpose_words(const void* from, int64_t from_stride, void* to) {
  HWY_DYNAMIC_DISPATCH(TransposeWords)(from, from_stride, to);
}
void pack_rows(const Matrix& x, char* to, int64_t tile_stride, int64_t row_stride) {
  HWY_DYNAMIC_DISPATCH(PackRows)(x, to, tile_stride, row_stride);
}
void dequantize_tile(DType dtype, const void* scales, const void* values, void* to) {
  HWY_DYNAMIC_DISPATCH(DequantizeTile)(dtype, scales, values, to);
}
void store_tiles(const char* tiles, const Matrix& out) { HWY_DYNAMIC_DISPATCH(StoreTiles)(tiles, out); }
void store_fence() { hwy::FlushStream(); }

}  // namespace cpu
}  // namespace lariat
#endif
