#include "kernels/cpu/amx_pack.h"

#include <algorithm>

#include "kernels/cpu/amx_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/amx_pack.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {
using cpu::kTileBytes;
using cpu::kTileColumns;
using cpu::kTileRows;

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

void DequantizeTile(const cpu::QuantBlock& of_block, const uint8_t* block, int64_t group, void* to) {
  // 8-bit values times an 8-bit scale are exact in f32.
  const auto pair = [](VL even, VL odd) HWY_ATTR {
    return hn::Or(Bf16Bits(DL(), even), hn::ShiftLeft<16>(Bf16Bits(DL(), odd)));
  };
  ForWeights(of_block, block, group,
             [&](int64_t i, int64_t lane, VL w0, VL w1, VL w2, VL w3) LARIAT_INLINE_BODY {
               auto* const pairs = static_cast<uint32_t*>(to) + i / 2 * kQuantRows + lane;
               hn::StoreU(pair(w0, w1), DLU(), pairs);
               hn::StoreU(pair(w2, w3), DLU(), pairs + kQuantRows);
             });
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
void pack_panel(const Matrix& rows, void* panel) {
  const bool words =
      (reinterpret_cast<uintptr_t>(rows.data) | static_cast<uintptr_t>(rows.stride * 2)) % 4 == 0;
  auto* to = static_cast<char*>(panel);
  for (int64_t column = 0; column < rows.cols; column += kTileColumns) {
    for (int64_t row = 0; row < kTiledBlock; row += kTileRows, to += kTileBytes) {
      const int64_t n_rows = std::clamp<int64_t>(rows.rows - row, 0, kTileRows),
                    n_cols = std::min(kTileColumns, rows.cols - column);
      const auto* from = static_cast<const uint16_t*>(rows.data) + row * rows.stride + column;
      if (words && n_rows == kTileRows && n_cols == kTileColumns) {
        transpose_words(from, rows.stride / 2, to);
        continue;
      }
      alignas(64) uint16_t part[kTileRows][kTileColumns] = {};
      for (int64_t r = 0; r < n_rows; ++r) std::copy_n(from + r * rows.stride, n_cols, part[r]);
      transpose_words(part, kTilePairs, to);
    }
  }
}
void dequantize_tile(const QuantBlock& of_block, const uint8_t* block, int64_t group, void* to) {
  HWY_DYNAMIC_DISPATCH(DequantizeTile)(of_block, block, group, to);
}
void store_tiles(const char* tiles, const Matrix& out) { HWY_DYNAMIC_DISPATCH(StoreTiles)(tiles, out); }
void store_fence() { hwy::FlushStream(); }

}  // namespace cpu
}  // namespace lariat
#endif
