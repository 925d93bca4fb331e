#include <algorithm>

#include "kernels/cpu/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_f32.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// A tile's sums, vectors of x and broadcast weight: 27 of 32 registers, or 15 of 16.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 12;
#endif
constexpr int64_t kTileLanes = hn::MaxLanes(F32());
constexpr int64_t kTilePanel = 2 * kTileLanes;

// The width of the panel that holds `rows` rows: a short last panel has one vector, not two.
constexpr int64_t PanelWidth(int64_t rows) { return rows > kTileLanes ? kTilePanel : kTileLanes; }

// packed[column][row] = x[row][column]; absent rows are zero.
void PackF32(const Matrix& x, bool round, void* packed) {
  constexpr int64_t kColumns = 64;  // at a time, so that the scattered stores stay in the first-level cache
  const F32 d;
  const int64_t width = PanelWidth(x.rows);
  for (int64_t first = 0; first < x.cols; first += kColumns) {
    const int64_t columns = std::min(kColumns, x.cols - first);
    float* block = static_cast<float*>(packed) + first * width;
    for (int64_t r = 0; r < width; ++r) {
      HWY_ALIGN float row[kColumns] = {};
      if (r < x.rows) std::copy_n(x.f32(r) + first, columns, row);
      for (int64_t c = 0; round && c < columns; c += kTileLanes) {
        hn::Store(RoundToBf16(d, hn::Load(d, row + c)), d, row + c);
      }
      for (int64_t c = 0; c < columns; ++c) block[c * width + r] = row[c];
    }
  }
}

// kRows rows of w times a panel of kVectors vectors.
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

// Full tiles from row `o` of w on, which is moved behind them.
template <int kRows, int kVectors>
void MultiplyTiles(const float* packed, const Matrix& w, bool accumulate, const Matrix& out, int64_t& o) {
  for (; o + kRows <= w.rows; o += kRows) {
    const Matrix part(out.f32() + o, DType::kF32, out.rows, kRows, out.stride);
    MultiplyTile<kRows, kVectors>(packed, w.row_range(o, kRows), accumulate, part);
  }
}

template <int kVectors>
void MultiplyPanel(const float* packed, const Matrix& w, bool accumulate, const Matrix& out) {
  int64_t o = 0;
  MultiplyTiles<kTileRows, kVectors>(packed, w, accumulate, out, o);
  MultiplyTiles<3, kVectors>(packed, w, accumulate, out, o);
  MultiplyTiles<1, kVectors>(packed, w, accumulate, out, o);
}

void MultiplyF32(const void* packed, const Matrix& w, bool accumulate, const Matrix& out) {
  const auto* panel = static_cast<const float*>(packed);
  if (PanelWidth(out.rows) == kTilePanel) {
    MultiplyPanel<2>(panel, w, accumulate, out);
  } else {
    MultiplyPanel<1>(panel, w, accumulate, out);
  }
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
