#include <algorithm>
#include <cstring>

#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_matmul.h"

// AVX-512 with VPDPBUSD: products of unsigned by signed bytes, added in fours to exact 32-bit sums. Weights
// are the unsigned operand; the start value of a sum compensates their zero point.
#if defined(__x86_64__)
#include <immintrin.h>
#define LARIAT_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,fma")))
#define LARIAT_VNNI_LAMBDA LARIAT_VNNI __attribute__((always_inline))

namespace lariat::cpu {
namespace {

constexpr int64_t kQuads = kQuantGroup / 4;

// Rows of x are `columns` bytes apart, tiles of w `distance` bytes.
struct Operands {
  const int8_t* x;
  const float* x_scales;
  const int32_t* x_sums;
  int64_t columns, groups;
  const QuantBlock& block;
  const uint8_t* w;
  int64_t distance, w_groups;
};

template <int kX, int kW>
LARIAT_VNNI inline __attribute__((always_inline)) void multiply_quad(const int8_t* x, int64_t columns,
                                                                     const __m512i (&w)[kW],
                                                                     __m512i (&sum)[kX][kW]) {
  for (int a = 0; a < kX; ++a) {
    int32_t quad;
    std::memcpy(&quad, x + a * columns, sizeof(quad));
    const __m512i inputs = _mm512_set1_epi32(quad);
    for (int b = 0; b < kW; ++b) sum[a][b] = _mm512_dpbusd_epi32(sum[a][b], w[b], inputs);
  }
}

// Values of a quad of a group in planes.
template <int kBits, int kQuad>
LARIAT_VNNI inline __attribute__((always_inline)) __m512i codes_at(const uint8_t* group) {
  constexpr QuantPlane kLow = planes_of(kBits)[0], kHigh = planes_of(kBits)[1];
  const __m512i low =
      _mm512_maskz_srli_epi16(~__mmask32{0}, _mm512_loadu_si512(group + kLow.line(kQuad)), kLow.shift(kQuad));
  const __m512i mask = _mm512_set1_epi8(kLow.mask());
  if constexpr (kHigh.bits == 0) {
    return _mm512_and_si512(low, mask);
  } else {
    constexpr int kUp = kHigh.first - kHigh.shift(kQuad), kSelect = 0xea;  // (low & mask) | high
    const __m512i line = _mm512_loadu_si512(group + kHigh.line(kQuad)),
                  place = _mm512_set1_epi8(static_cast<char>(kHigh.mask() << kHigh.first));
    const __m512i high = kUp > 0 ? _mm512_maskz_slli_epi16(~__mmask32{0}, line, std::max(kUp, 0))
                                 : _mm512_maskz_srli_epi16(~__mmask32{0}, line, std::max(-kUp, 0));
    return _mm512_ternarylogic_epi32(low, mask, _mm512_and_si512(high, place), kSelect);
  }
}

// Integer sums of part kPart of one group. kMaxQuantTiles tiles are prefetched streams. table: value of each
// code, plus 128.
template <class K, int kPart, int kX, int kW>
LARIAT_VNNI inline __attribute__((always_inline)) void multiply_group(const int8_t* x, int64_t columns,
                                                                      const uint8_t* w, int64_t distance,
                                                                      __m512i table, __m512i (&sum)[kX][kW]) {
  constexpr int64_t kVectors = K::kBits == 4 ? kQuads / 2 : kQuads / K::kParts;
  constexpr int64_t kFirst = K::kBits == 4 ? 0 : kPart * kVectors;
  if constexpr (K::kPlanes) {
    const auto multiply = [&]<int kQuad>(std::integral_constant<int, kQuad>) LARIAT_VNNI_LAMBDA {
      __m512i weights[kW];
      for (int b = 0; b < kW; ++b) {
        if constexpr (kW == kMaxQuantTiles && kQuad < K::kBits)
          fetch_ahead<true>(w + b * distance + kQuad * kLineBytes);
        weights[b] = codes_at<K::kBits, kQuad>(w + b * distance);
      }
      multiply_quad<kX, kW>(x + 4 * kQuad, columns, weights, sum);
    };
    return [&]<int... kQuad>(std::integer_sequence<int, kQuad...>) LARIAT_VNNI_LAMBDA {
      (multiply(std::integral_constant<int, kFirst + kQuad>()), ...);
    }
    (std::make_integer_sequence<int, kVectors>());
  }
  const auto values = [&](__m512i nibbles) LARIAT_VNNI_LAMBDA {
    const __m512i codes = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
    return K::kTable ? _mm512_maskz_shuffle_epi8(~__mmask64{0}, table, codes) : codes;
  };
  for (int64_t v = kFirst; v < kFirst + kVectors; ++v) {
    __m512i weights[kW];
    for (int b = 0; b < kW; ++b) {
      const uint8_t* vector = w + b * distance + v * kLineBytes;
      if constexpr (kW == kMaxQuantTiles) fetch_ahead<true>(vector);
      weights[b] = _mm512_loadu_si512(vector);
    }
    if constexpr (K::kBits == 8) {
      multiply_quad<kX, kW>(x + 4 * v, columns, weights, sum);
    } else {
      __m512i some[kW];
      if constexpr (K::kParts == 1 || kPart == 0) {
        for (int b = 0; b < kW; ++b) some[b] = values(weights[b]);
        multiply_quad<kX, kW>(x + 4 * v, columns, some, sum);
      }
      if constexpr (K::kParts == 1 || kPart == 1) {
        for (int b = 0; b < kW; ++b) {
          some[b] = values(_mm512_maskz_srli_epi16(~__mmask32{0}, weights[b], 4));
        }
        multiply_quad<kX, kW>(x + 4 * (v + kVectors), columns, some, sum);
      }
    }
  }
}

LARIAT_VNNI inline __attribute__((always_inline)) __m256i halves_at(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

template <bool kMinimum>
LARIAT_VNNI inline __attribute__((always_inline)) __m512 scales_at(ScaleType type, const uint8_t* inner,
                                                                   const uint8_t* outer) {
  constexpr __mmask16 kAll = 0xffff;
  switch (type) {
    case ScaleType::kBF16:
      return _mm512_castsi512_ps(
          _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, halves_at(inner)), 16));
    case ScaleType::kF16:
      return _mm512_maskz_cvtph_ps(kAll, halves_at(inner));
    case ScaleType::kF32:
      return _mm512_loadu_ps(inner);
    default:
      break;
  }
  __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(inner));
  if (type == ScaleType::kPairs)
    bytes = _mm_and_si128(_mm_maskz_srli_epi16(0xff, bytes, kMinimum ? 4 : 0), _mm_set1_epi8(15));
  return _mm512_mul_ps(_mm512_maskz_cvtph_ps(kAll, halves_at(outer)),
                       _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, bytes)));
}

template <class K, int kPart, int kX, int kW>
LARIAT_VNNI inline __attribute__((always_inline)) void add_part(const Operands& from, const uint8_t* block,
                                                                int64_t g, int64_t place, __m512i table,
                                                                __m512 (&total)[kX][kW]) {
  const QuantBlock& of_block = from.block;
  int of_x[kX];
  for (int a = 0; a < kX; ++a) {
    const int32_t* sums = from.x_sums + 2 * (a * from.groups + g);
    of_x[a] = K::of_x(sums, kPart);
  }
  __m512i sum[kX][kW];
  for (int a = 0; a < kX; ++a) {
    for (int b = 0; b < kW; ++b) {
      sum[a][b] = _mm512_set1_epi32(-(K::kTable ? 128 : of_block.zero) * of_x[a]);
    }
  }
  multiply_group<K, kPart, kX, kW>(from.x + g * kQuantGroup, from.columns,
                                   block + of_block.scale_bytes + place * of_block.group_bytes, from.distance,
                                   table, sum);
  const ScaleType type = K::kPlain ? ScaleType::kBF16 : of_block.scales;
  const int64_t scales =
      K::kPlain ? place * kQuantRows * 2 : of_block.scales_at(place * kQuantGroup + kPart * kQuantGroup / 2);
  for (int b = 0; b < kW; ++b) {
    const uint8_t *outer = block + b * from.distance, *inner = outer + scales;
    const __m512 scale = scales_at<false>(type, inner, outer);
    for (int a = 0; a < kX; ++a) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(from.x_scales[a * from.groups + g]));
      const __m512 integers = _mm512_maskz_cvtepi32_ps(0xffff, sum[a][b]);
      total[a][b] = _mm512_fmadd_ps(integers, both, total[a][b]);
    }
    if (K::kPlain || !of_block.minimum) continue;
    const __m512 minimum = scales_at<true>(type, inner + of_block.inner_bytes, outer + 2 * kQuantRows);
    for (int a = 0; a < kX; ++a) {
      const float x = from.x_scales[a * from.groups + g] * static_cast<float>(of_x[a]);
      total[a][b] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x), total[a][b]);
    }
  }
}

template <class K, int kX, int kW>
LARIAT_VNNI void dot(const Operands& from, const QuantTask& task) {
  const int64_t groups = K::kPlain ? kQuantBlock / kQuantGroup : from.block.groups;
  __m512i table = _mm512_setzero_si512();
  if constexpr (K::kTable) {
    const auto* values = reinterpret_cast<const __m128i*>(from.block.table.data());
    table = _mm512_xor_si512(_mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128(values)),
                             _mm512_set1_epi8(-128));
  }
  __m512 total[kX][kW];
  for (auto& row : total) {
    for (auto& t : row) t = _mm512_setzero_ps();
  }
  const uint8_t* block = from.w;
  for (int64_t top = 0; top < from.w_groups; top += groups, block += from.block.block_bytes) {
    for (int64_t place = 0; place < groups; ++place) {
      add_part<K, 0>(from, block, top + place, place, table, total);
      if constexpr (K::kParts == 2) add_part<K, 1>(from, block, top + place, place, table, total);
    }
  }
  for (int a = 0; a < kX; ++a) {
    for (int b = 0; b < kW; ++b) {
      float products[kQuantRows];
      _mm512_storeu_ps(products, total[a][b]);
      task.store(a, (task.first_tile + b * task.tile_distance) * kQuantRows, products);
    }
  }
}

template <class K>
void dot_task(const QuantTask& task, const QuantBlock& block) {
  const QuantLayout layout(task.w);
  const int64_t groups = task.x.groups;
  const Operands from{task.x.values + task.first_row * task.x.columns(),
                      task.x.scales + task.first_row * groups,
                      task.x.sums + task.first_row * groups * 2,
                      task.x.columns(),
                      groups,
                      block,
                      static_cast<const uint8_t*>(task.w.data) + task.first_tile * layout.tile_bytes(),
                      task.tile_distance * layout.tile_bytes(),
                      layout.groups()};
  const auto multiply = [&]<int kW>(std::integral_constant<int, kW>) {
    constexpr int kMostRows = kW <= 2 && !K::kPlanes ? kMaxQuantRows : kFewQuantRows;  // as registers allow
    with_count<kMostRows>(task.rows, [&](auto rows) { dot<K, rows, kW>(from, task); });
  };
  if (task.tiles == 4) return multiply(std::integral_constant<int, 4>());
  if (task.tiles == 1) return multiply(std::integral_constant<int, 1>());
  if constexpr (!K::kPlanes) multiply(std::integral_constant<int, 2>());
}

}  // namespace

void quant_dot_vnni(const QuantTask& task) {
  with_kind<true>(QuantBlock(task.w), [&]<class K>(const QuantBlock& block, K) { dot_task<K>(task, block); });
}

LARIAT_VNNI double vnni_multiply_adds(int64_t repetitions, float* sink) {
  constexpr int kSums = 12;
  __m512i sum[kSums];
  for (auto& s : sum) s = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t t = 0; t < repetitions; ++t) {
    for (auto& s : sum) s = _mm512_dpbusd_epi32(s, x, x);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  int32_t lanes[kQuantRows];
  _mm512_storeu_si512(lanes, sum[0]);
  *sink = static_cast<float>(lanes[0]);
  return 2.0 * kSums * 64 * static_cast<double>(repetitions);
}

}  // namespace lariat::cpu

#endif
