#include <algorithm>

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

template <int kRows, int kVectors>
void MultiplyTile(const float* HWY_RESTRICT packed, const Matrix& w, bool accumulate, const Matrix& out) {
  const F32 d;
  VF32 sum[kRows][kVectors];
  for (auto& row : sum) {
    for (auto& s : row) s = hn::Zero(d);
  }
  const float* HWY_RESTRICT weights = w.f32();
  for (int64_t i = 0; i < w.cols; ++i, packed += kVectors * kTileLanes) {
    VF32 x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, packed + v * kTileLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF32 weight = hn::Set(d, weights[r * w.stride + i]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x[v], weight, sum[r][v]);
    }
  }
  HWY_ALIGN float tile[kRows][kVectors * kTileLanes];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, tile[r] + v * kTileLanes);
  }
  cpu::store_transposed(tile[0], kVectors * kTileLanes, out.rows, kRows, accumulate, out.f32(), out.stride);
}

void MultiplyF32(const void* packed, const Matrix& w, bool accumulate, const Matrix& out) {
  with_count<2>(PanelWidth(out.rows) / kTileLanes, [&](auto vectors) HWY_ATTR {
    cpu::for_row_tiles<kTileRows, 3, 1>(
        w, out, [&](auto rows, const Matrix& some_w, const Matrix& some_out) HWY_ATTR {
          MultiplyTile<rows, vectors>(static_cast<const float*>(packed), some_w, accumulate, some_out);
        });
  });
}

cpu::GemmKernel KernelF32() { return {kTilePanel, kTileRows, DType::kF32, PackF32, MultiplyF32}; }

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
