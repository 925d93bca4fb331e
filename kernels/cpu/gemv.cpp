#include "kernels/cpu/gemv.h"

#include <algorithm>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/products.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// kX * kW independent sums hide FMA latency; every sum's order is the same for all kX and kW.
template <typename X>
struct Dot {
  template <int kX, int kW, typename T>
  static HWY_INLINE void step(const X* HWY_RESTRICT x, int64_t x_stride, const T* HWY_RESTRICT w,
                              int64_t w_distance, VF32 (&sum)[kX][kW]) {
    const F32 d;
    VF32 weight[kW];
    for (int b = 0; b < kW; ++b) weight[b] = LoadF32(d, w + b * w_distance);
    for (int a = 0; a < kX; ++a) {
      const VF32 value = LoadF32(d, x + a * x_stride);
      for (int b = 0; b < kW; ++b) sum[a][b] = hn::MulAdd(value, weight[b], sum[a][b]);
    }
  }

  template <int kX, int kW, typename T>
  static HWY_NOINLINE void block(const Matrix& x, const T* HWY_RESTRICT w, int64_t w_distance, bool once,
                                 float* HWY_RESTRICT out, int64_t out_distance, int64_t out_stride) {
    const F32 d;
    constexpr bool kAvx512 = hn::MaxLanes(F32()) >= 16;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t line = std::max(lanes, cpu::kLineBytes / static_cast<int64_t>(sizeof(T)));
    const X* HWY_RESTRICT rows = static_cast<const X*>(x.data);
    VF32 sum[kX][kW];
    for (auto& row : sum) {
      for (auto& s : row) s = hn::Zero(d);
    }
    int64_t i = 0;
    for (; i + line <= x.cols; i += line) {
      for (int b = 0; once && b < kW; ++b) cpu::fetch_ahead<kAvx512>(w + b * w_distance + i);
      for (int64_t j = i; j < i + line; j += lanes) step(rows + j, x.stride, w + j, w_distance, sum);
    }
    for (; i + lanes <= x.cols; i += lanes) step(rows + i, x.stride, w + i, w_distance, sum);
    if (const auto rest = static_cast<size_t>(x.cols - i); rest != 0) {
      VF32 weight[kW];
      for (int b = 0; b < kW; ++b) weight[b] = LoadTailF32(d, w + b * w_distance + i, rest);
      for (int a = 0; a < kX; ++a) {
        const VF32 value = LoadTailF32(d, rows + a * x.stride + i, rest);
        for (int b = 0; b < kW; ++b) sum[a][b] = hn::MulAdd(value, weight[b], sum[a][b]);
      }
    }
    for (int a = 0; a < kX; ++a) {
      for (int b = 0; b < kW; ++b) {
        out[a * out_stride + b * out_distance] = hn::GetLane(hn::SumOfLanes(d, sum[a][b]));
      }
    }
  }
};

void Gemv(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last) {
  WithDType(w.data, w.dtype, [&](const auto* weights) HWY_ATTR {
    if (x.dtype == DType::kF32) {
      cpu::gemv_range<Dot<float>>(x, weights, w.stride, out, first, last);
    } else {
      cpu::gemv_range<Dot<hwy::bfloat16_t>>(x, weights, w.stride, out, first, last);
    }
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(Gemv);

namespace cpu {
namespace {

// These rows of x stay in L2 while the weights stream: 32 rows of 8192 floats are 1 MiB.
constexpr int64_t kRowsInCache = 32;

int64_t units(const Product& product) { return ceil_div(product.w.rows, gemv_unit(product.w)); }

}  // namespace

void gemv_columns(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last) {
  if (w.tiled) return gemv_amx(x, w, out, first / kTiledBlock, ceil_div(last, kTiledBlock));
  const bool bf16 = x.dtype == DType::kBF16 && w.dtype == DType::kBF16 && has_avx512_bf16();
  for (int64_t t = 0; t < x.rows; t += kRowsInCache) {
    const int64_t rows = std::min(kRowsInCache, x.rows - t);
    const Matrix some_x = x.row_range(t, rows), some_out = out.row_range(t, rows);
    if (bf16) {
      gemv_bf16(some_x, w, some_out, first, last);
    } else {
      HWY_DYNAMIC_DISPATCH(Gemv)(some_x, w, some_out, first, last);
    }
  }
}

void gemv(const Matrix& x, std::span<const Product> products, int threads) {
  const int64_t all = units_of(products, units), rows = all * gemv_unit(products[0].w);
  for_ranges(team_for(x.rows * rows * x.cols, 1 << 17, threads), all, 1, [&](int64_t begin, int64_t end) {
    for_products(products, begin, end, units, [&](const Product& product, int64_t first, int64_t last) {
      first *= gemv_unit(product.w);
      last = std::min(last * gemv_unit(product.w), product.w.rows);
      gemv_columns(x, product.w, product.out, first, last);
      add_bias(product.bias, first, product.out.column_range(first, last - first));
    });
  });
}

}  // namespace cpu
}  // namespace lariat
#endif
