#include <algorithm>
#include <numeric>

#include "kernels/cpu/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_f32.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Registers of a tile: sums, vectors of x and a broadcast weight; 27 of 32, or 15 of 16.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 12;
#endif
constexpr int64_t kTileLanes = hn::MaxLanes(F32());
constexpr int64_t kTilePanel = 2 * kTileLanes;
constexpr int64_t kSumRows = std::lcm(kTileRows, kTileLanes);  // whole tiles, and whole squares to transpose

// A short last panel has one vector, not two.
constexpr int64_t PanelWidth(int64_t rows) { return rows > kTileLanes ? kTilePanel : kTileLanes; }

// packed[column][row] = x[row][column]; absent rows are zero.
void PackF32(const Matrix& x, bool round, void* packed) {
  const F32 d;
  const int64_t width = PanelWidth(x.rows);
  for (int64_t column = 0; column < x.cols; column += kTileLanes) {
    const int64_t columns = std::min(kTileLanes, x.cols - column);
    float* to = static_cast<float*>(packed) + column * width;
    for (int64_t row = 0; row < width; row += kTileLanes, to += kTileLanes) {
      VF32 tile[kTileLanes];
      Unroll<kTileLanes>([&](auto r) LARIAT_INLINE_BODY {
        const int64_t at = row + r;
        tile[r] = at < x.rows ? LoadUpTo(x.f32(at) + column, static_cast<size_t>(columns)) : hn::Zero(d);
        if (round) tile[r] = RoundToBf16(d, tile[r]);
      });
      Transpose(tile);
      Unroll<kTileLanes>([&](auto c) LARIAT_INLINE_BODY {
        if (c < columns) hn::StoreU(tile[c], d, to + c * width);
      });
    }
  }
}

// sums[row of w][packed row], in vectors that Unroll keeps in registers. Each column prefetches into L2: a
// load from L3 stalls the sums.
template <int kRows, int kVectors>
void MultiplyTile(const float* HWY_RESTRICT packed, const Matrix& w, const char* ahead, int64_t step,
                  float* HWY_RESTRICT sums) {
  const F32 d;
  constexpr int kGroup = 3;  // rows of w per pointer: a pointer per row would not fit the registers
  VF32 sum[kRows][kVectors];
  const float* weights[(kRows + kGroup - 1) / kGroup];
  const int64_t stride = w.stride;
  Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
    if constexpr (r % kGroup == 0) weights[r / kGroup] = w.f32(r);
    Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY { sum[r][v] = hn::Zero(d); });
  });
  for (int64_t i = 0; i < w.cols; ++i, packed += kVectors * kTileLanes, ahead += step) {
    VF32 x[kVectors];
    Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY { x[v] = hn::LoadU(d, packed + v * kTileLanes); });
    if constexpr (kVectors == 2) __builtin_prefetch(ahead, 0, 2);  // fewer sums would wait for the loads
    Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
      const VF32 weight = hn::Set(d, weights[r / kGroup][r % kGroup * stride]);
      Unroll<kVectors>([&](auto v) LARIAT_INLINE_BODY { sum[r][v] = hn::MulAdd(x[v], weight, sum[r][v]); });
    });
    for (auto& row : weights) ++row;
  }
  Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
    Unroll<kVectors>(
        [&](auto v) LARIAT_INLINE_BODY { hn::Store(sum[r][v], d, sums + r * kTilePanel + v * kTileLanes); });
  });
}

// out[t][o] = (or +=) sums[o][t]
void StoreTransposed(const float* HWY_RESTRICT sums, bool accumulate, const Matrix& out) {
  const F32 d;
  for (int64_t o = 0; o < out.cols; o += kTileLanes, sums += kTileLanes * kTilePanel) {
    const auto count = static_cast<size_t>(std::min(kTileLanes, out.cols - o));
    for (int64_t t = 0; t < out.rows; t += kTileLanes) {
      VF32 tile[kTileLanes];
      Unroll<kTileLanes>([&](auto r)
                             LARIAT_INLINE_BODY { tile[r] = hn::Load(d, sums + r * kTilePanel + t); });
      Transpose(tile);
      Unroll<kTileLanes>([&](auto r) LARIAT_INLINE_BODY {
        if (t + r >= out.rows) return;
        float* to = out.f32(t + r) + o;
        StoreUpTo(accumulate ? hn::Add(LoadUpTo(to, count), tile[r]) : tile[r], to, count);
      });
    }
  }
}

void MultiplyF32(const void* packed, const Matrix& w, bool accumulate, const Matrix& out) {
  constexpr int64_t kLine = 64 / sizeof(float);
  HWY_ALIGN float sums[kSumRows * kTilePanel] = {};  // absent rows are transposed, too
  with_count<2>(PanelWidth(out.rows) / kTileLanes, [&](auto vectors) HWY_ATTR {
    const auto* x = static_cast<const float*>(packed);
    const auto* ahead = reinterpret_cast<const char*>(x + w.cols * kTilePanel);  // the next panel
    const int64_t step = kTileRows * kTilePanel * static_cast<int64_t>(sizeof(float)) / w.rows;
    for (int64_t first = 0; first < w.rows; first += kSumRows) {
      const int64_t count = std::min(kSumRows, w.rows - first);
      const Matrix to = out.column_range(first, count);
      cpu::for_row_tiles<kTileRows, 3, 1>(count, [&](auto rows, int64_t o) HWY_ATTR {
        for (int64_t t = o; t < std::min(o + rows, out.rows); ++t) {
          for (int64_t c = 0; c < count; c += kLine) __builtin_prefetch(to.f32(t) + c, 1);
        }
        MultiplyTile<rows, vectors>(x, w.row_range(first + o, rows), ahead, step, sums + o * kTilePanel);
        ahead += step * w.cols;
      });
      StoreTransposed(sums, accumulate, to);
    }
  });
}

cpu::GemmKernel KernelF32() { return {kTilePanel, kSumRows, DType::kF32, PackF32, MultiplyF32}; }

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(KernelF32);

namespace cpu {

const GemmKernel& gemm_f32_kernel() {
  static const GemmKernel kernel = HWY_DYNAMIC_DISPATCH(KernelF32)();
  return kernel;
}

}  // namespace cpu
}  // namespace lariat
#endif
