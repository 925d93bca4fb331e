#include <cstring>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/avx512_bf16.h"

#if defined(__x86_64__)

namespace lariat::cpu {
namespace {

// 8 x 2 sums, 2 vectors of b and a broadcast: 19 of 32 registers, 16 products in flight.
constexpr int kRows = 8;

float* sums_of(char* c, int64_t stride, int row, int tile) {
  return reinterpret_cast<float*>(c + row * stride + tile * 64);
}

// kRows rows of both tiles at c += rows of a (a.half is unused) times b's two tiles.
LARIAT_AVX512_BF16 void multiply_rows(const TilePlaces& a, const TilePlaces& b, int64_t depth, bool zero,
                                      char* c, int64_t stride) {
  __m512 sum[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v)
      sum[r][v] = zero ? _mm512_setzero_ps() : _mm512_loadu_ps(sums_of(c, stride, r, v));
  }
  for (int64_t t = 0; t < depth; ++t) {
    const char* left = a.at + t * a.step;
    const char* right = b.at + t * b.step;
    for (int64_t p = 0; p < kTilePairs; ++p, left += 4, right += b.stride) {
      const auto b0 = (__m512bh)_mm512_loadu_si512(right), b1 = (__m512bh)_mm512_loadu_si512(right + b.half);
      for (int r = 0; r < kRows; ++r) {
        int32_t pair;
        std::memcpy(&pair, left + r * a.stride, sizeof(pair));
        const auto both = (__m512bh)_mm512_set1_epi32(pair);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], both, b0);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], both, b1);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(sums_of(c, stride, r, v), sum[r][v]);
  }
}

}  // namespace

template <>
void multiply_square<PairVectors>(const TilePlaces& a, const TilePlaces& b, int64_t depth, bool zero, char* c,
                                  int64_t stride) {
  for (int64_t row = 0; row < 2 * kTileRows; row += kRows) {
    const char* rows = a.at + row / kTileRows * a.half + row % kTileRows * a.stride;
    multiply_rows({rows, a.stride, 0, a.step}, b, depth, zero, c + row * stride, stride);
  }
}

void (*attention_amx)(const AttentionTask& task) = attention_tiles<AmxTiles>;
void attention_pairs(const AttentionTask& task) { attention_tiles<PairVectors>(task); }

}  // namespace lariat::cpu

#endif
