#include <algorithm>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/gemm.h"

// AVX-512 with VDPBF16PS: twice the multiply-adds of an f32 FMA. Subnormal inputs and results become zero.
#if defined(__x86_64__)

namespace lariat::cpu {
namespace {

constexpr int64_t kLanes = 16;  // f32 sums in a vector, pairs of bf16 in a vector
constexpr int64_t kPanel = 2 * kLanes;
constexpr int kWRows = 12;  // 12 x 2 sums, 2 vectors of x and a broadcast: 27 of 32 registers

// A short last panel has one vector, not two.
constexpr int64_t panel_width(int64_t rows) { return rows > kLanes ? kPanel : kLanes; }

// packed[pair][row] = (x[row][2 pair], x[row][2 pair + 1]); absent rows and an absent last column are zero.
void pack(const Matrix& x, bool, void* packed) {
  constexpr int64_t kColumns = 128;  // scattered stores stay in L1
  auto* to = static_cast<uint32_t*>(packed);
  const int64_t width = panel_width(x.rows);
  for (int64_t first = 0; first < x.cols; first += kColumns) {
    const int64_t columns = std::min(kColumns, x.cols - first), pairs = (columns + 1) / 2;
    uint32_t* block = to + first / 2 * width;
    for (int64_t r = 0; r < width; ++r) {
      uint16_t row[kColumns] = {};
      if (r < x.rows) {
        convert_rows({x.f32(r) + first, DType::kF32, 1, columns}, {row, DType::kBF16, 1, columns});
      }
      for (int64_t p = 0; p < pairs; ++p) std::memcpy(block + p * width + r, row + 2 * p, sizeof(uint32_t));
    }
  }
}

template <int kRows, int kVectors>
LARIAT_AVX512_BF16 inline __attribute__((always_inline)) void accumulate_pairs(
    const char* packed, const uint16_t* w, int64_t w_stride, int64_t pairs, __m512 (&sum)[kRows][kVectors]) {
  constexpr size_t kAhead = 16 * kVectors * sizeof(__m512);  // the panel comes from L2
  for (int64_t p = 0; p < pairs; ++p, packed += kVectors * sizeof(__m512)) {
    __m512bh x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = (__m512bh)_mm512_loadu_si512(packed + v * sizeof(__m512));
    for (int v = 0; v < kVectors; ++v) _mm_prefetch(packed + kAhead + v * sizeof(__m512), _MM_HINT_T0);
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, w + r * w_stride + 2 * p, sizeof(pair));
      const auto weight = (__m512bh)_mm512_set1_epi32(pair);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x[v], weight);
    }
  }
}

template <int kRows, int kVectors>
LARIAT_AVX512_BF16 void multiply_tile(const char* packed, const Matrix& w, bool accumulate,
                                      const Matrix& out) {
  __m512 sum[kRows][kVectors];
  for (auto& row : sum) {
    for (auto& s : row) s = _mm512_setzero_ps();
  }
  const auto* weights = static_cast<const uint16_t*>(w.data);
  const int64_t pairs = w.cols / 2;
  accumulate_pairs(packed, weights, w.stride, pairs, sum);
  if (w.cols % 2 != 0) {  // the next value of w is not in the row
    uint16_t last[kRows][2] = {};
    for (int r = 0; r < kRows; ++r) last[r][0] = weights[r * w.stride + w.cols - 1];
    accumulate_pairs(packed + pairs * kVectors * sizeof(__m512), last[0], 2, 1, sum);
  }
  alignas(64) float tile[kRows][kVectors * kLanes];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(tile[r] + v * kLanes, sum[r][v]);
  }
  for (int64_t t = 0; t < out.rows; ++t) {
    float* to = out.f32(t);
    if (accumulate) {
      for (int64_t o = 0; o < kRows; ++o) to[o] += tile[o][t];
    } else {
      for (int64_t o = 0; o < kRows; ++o) to[o] = tile[o][t];
    }
  }
}

void multiply(const void* packed, const Matrix& w, bool accumulate, const Matrix& out) {
  with_count<2>(panel_width(out.rows) / kLanes, [&](auto vectors) {
    for_row_tiles<kWRows, 4, 1>(w.rows, [&](auto rows, int64_t o) {
      multiply_tile<rows, vectors>(static_cast<const char*>(packed), w.row_range(o, rows), accumulate,
                                   out.column_range(o, rows));
    });
  });
}

}  // namespace

const GemmKernel& gemm_bf16_kernel() {
  static const GemmKernel kernel{kPanel, kWRows, DType::kBF16, pack, multiply};
  return kernel;
}

LARIAT_AVX512_BF16 double bf16_multiply_adds(int64_t repetitions, float* sink) {
  constexpr int kSums = 12;
  __m512 sum[kSums];
  for (auto& s : sum) s = _mm512_setzero_ps();
  const auto x = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  for (int64_t t = 0; t < repetitions; ++t) {
    for (auto& s : sum) s = _mm512_dpbf16_ps(s, x, x);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  *sink = _mm512_cvtss_f32(sum[0]);
  return 4.0 * kSums * kLanes * static_cast<double>(repetitions);
}

}  // namespace lariat::cpu

#endif
