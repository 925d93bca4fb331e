#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/quant.h"

// Vectors of quantized weights on AVX2; lanes are half of a tile's outputs.
#if defined(__x86_64__)
#include <immintrin.h>
#define LARIAT_AVX2 __attribute__((target("avx2,fma,f16c")))
#define LARIAT_AVX2_INLINE LARIAT_AVX2 inline __attribute__((always_inline))
#define LARIAT_AVX2_LAMBDA LARIAT_AVX2 __attribute__((always_inline))

namespace lariat::cpu {

inline constexpr int kHalves = 2;  // vectors of 8 outputs in a tile
inline constexpr int64_t kVectorBytes = 32, kHalfRows = kQuantRows / kHalves;

LARIAT_AVX2_INLINE __m256i quad_at(const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof(quad));
  return _mm256_set1_epi32(quad);
}

LARIAT_AVX2_INLINE __m256i vector_at(const uint8_t* w) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
}

// Calls body(std::integral_constant<int, i>()) for kFirst, kFirst + kStep, ... below kEnd.
template <int kFirst, int kEnd, int kStep, class Body>
LARIAT_AVX2_INLINE void unroll(const Body& body) {
  if constexpr (kFirst < kEnd) {
    body(std::integral_constant<int, kFirst>());
    unroll<kFirst + kStep, kEnd, kStep>(body);
  }
}

// Values of a quad of a group, for half of the outputs.
template <int kBits, int kQuad>
LARIAT_AVX2_INLINE __m256i codes_at(const uint8_t* half) {
  constexpr QuantPlane kLow = planes_of(kBits)[0], kHigh = planes_of(kBits)[1];
  const __m256i low =
      _mm256_and_si256(_mm256_srli_epi16(vector_at(half + kLow.line(kQuad)), kLow.shift(kQuad)),
                       _mm256_set1_epi8(kLow.mask()));
  if constexpr (kHigh.bits == 0) {
    return low;
  } else {
    constexpr int kUp = kHigh.first - kHigh.shift(kQuad);
    const __m256i line = vector_at(half + kHigh.line(kQuad)),
                  place = _mm256_set1_epi8(static_cast<char>(kHigh.mask() << kHigh.first));
    const __m256i high =
        kUp > 0 ? _mm256_slli_epi16(line, std::max(kUp, 0)) : _mm256_srli_epi16(line, std::max(-kUp, 0));
    return _mm256_or_si256(low, _mm256_and_si256(high, place));
  }
}

// Half of 16 scales, or minima.
LARIAT_AVX2_INLINE __m256 scales_at(ScaleType type, const uint8_t* inner, const uint8_t* outer, int half) {
  const auto at = [half](const uint8_t* from, int64_t width) LARIAT_AVX2_LAMBDA {
    return reinterpret_cast<const __m128i*>(from + half * kHalfRows * width);
  };
  switch (type) {
    case ScaleType::kBF16:
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at(inner, 2))), 16));
    case ScaleType::kF16:
      return _mm256_cvtph_ps(_mm_loadu_si128(at(inner, 2)));
    case ScaleType::kF32:
      return _mm256_loadu_ps(reinterpret_cast<const float*>(at(inner, 4)));
    default:
      break;
  }
  const __m256 small = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at(inner, 1))));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(at(outer, 2))), small);
}

// Small integers of half a tile, and pairs of them, one per half of a lane.
template <class K, bool kMinimum>
LARIAT_AVX2_INLINE __m256i small_at(const uint8_t* inner, int half) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(inner + half * kHalfRows));
  if (!K::kPairs) return _mm256_cvtepi8_epi32(bytes);
  return _mm256_cvtepi8_epi32(_mm_and_si128(_mm_srli_epi16(bytes, kMinimum ? 4 : 0), _mm_set1_epi8(15)));
}
LARIAT_AVX2_INLINE __m256i pair_of(__m256i low, __m256i high) {
  return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xAA);
}

}  // namespace lariat::cpu

#endif
