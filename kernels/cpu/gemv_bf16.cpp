#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/gemv.h"

// bf16 times bf16 without conversion (AVX-512 BF16). A bf16 x takes half the space in L1: with 5632 columns
// 83 GB/s, vs 55 for an f32 x.
#if defined(__x86_64__)

namespace lariat::cpu {
namespace {

// The compiler's reduction warns about registers left undefined on purpose.
LARIAT_AVX512_BF16 float sum_of_lanes(__m512 v) {
  constexpr __mmask16 kAll = 0xffff;
  v = _mm512_add_ps(v, _mm512_maskz_shuffle_f32x4(kAll, v, v, 0x4e));
  v = _mm512_add_ps(v, _mm512_maskz_shuffle_f32x4(kAll, v, v, 0xb1));
  v = _mm512_add_ps(v, _mm512_maskz_permute_ps(kAll, v, 0x4e));
  v = _mm512_add_ps(v, _mm512_maskz_permute_ps(kAll, v, 0xb1));
  return _mm512_cvtss_f32(v);
}

struct DotBf16 {
  static constexpr int64_t kLanes = 32;

  template <int kX, int kW>
  LARIAT_AVX512_BF16 static inline __attribute__((always_inline)) void step(
      const uint16_t* x, int64_t x_stride, const uint16_t* w, int64_t w_distance, __mmask32 lanes,
      __m512 (&sum)[kX][kW]) {
    __m512bh weight[kW];
    for (int b = 0; b < kW; ++b) weight[b] = (__m512bh)_mm512_maskz_loadu_epi16(lanes, w + b * w_distance);
    for (int a = 0; a < kX; ++a) {
      const auto value = (__m512bh)_mm512_maskz_loadu_epi16(lanes, x + a * x_stride);
      for (int b = 0; b < kW; ++b) sum[a][b] = _mm512_dpbf16_ps(sum[a][b], value, weight[b]);
    }
  }

  template <int kX, int kW>
  LARIAT_AVX512_BF16 static void block(const Matrix& x, const uint16_t* w, int64_t w_distance, bool once,
                                       float* out, int64_t out_distance, int64_t out_stride) {
    const auto* rows = static_cast<const uint16_t*>(x.data);
    __m512 sum[kX][kW];
    for (auto& row : sum) {
      for (auto& s : row) s = _mm512_setzero_ps();
    }
    int64_t i = 0;
    for (; i + kLanes <= x.cols; i += kLanes) {
      for (int b = 0; once && b < kW; ++b) fetch_ahead<true>(w + b * w_distance + i);
      step(rows + i, x.stride, w + i, w_distance, ~__mmask32{0}, sum);
    }
    if (i < x.cols) {
      step(rows + i, x.stride, w + i, w_distance, (__mmask32{1} << (x.cols - i)) - 1, sum);
    }
    for (int a = 0; a < kX; ++a) {
      for (int b = 0; b < kW; ++b) out[a * out_stride + b * out_distance] = sum_of_lanes(sum[a][b]);
    }
  }
};

}  // namespace

void gemv_bf16(const Matrix& x, const Matrix& w, const Matrix& out, int64_t first, int64_t last) {
  gemv_range<DotBf16>(x, static_cast<const uint16_t*>(w.data), w.stride, out, first, last);
}

}  // namespace lariat::cpu

#endif
