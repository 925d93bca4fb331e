#include <algorithm>
#include <cstring>

#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/quant_matmul.h"

// AVX2 with VPMADDUBSW: 32 products of unsigned with signed bytes per instruction, added in pairs to 16 bits.
// A pair of weights of 4 bits stays below 2 * 15 * 127, so that all 8 of a group fit 16 bits. One of 8 bits
// may reach 2 * 255 * 127, which saturates, unless the side without a sign is the magnitude of x and its sign
// goes over to w - 128: 2 * 127 * 127. So sums are as exact as those of the other kernels.
#if defined(__x86_64__)
#include <immintrin.h>
#define LARIAT_AVX2 __attribute__((target("avx2,fma")))
#define LARIAT_AVX2_INLINE LARIAT_AVX2 inline __attribute__((always_inline))

namespace lariat::cpu {
namespace {

constexpr int kHalves = 2;  // vectors of 8 outputs in a tile
constexpr int kRowsInRegisters = 3;
constexpr int64_t kVectorBytes = 32, kHalfRows = kQuantRows / kHalves, kHalfScaleBytes = 2 * kHalfRows;
constexpr int64_t kGroupQuads = kQuantGroup / 4;

// Four inputs of a row in every lane.
LARIAT_AVX2_INLINE __m256i quad_at(const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof(quad));
  return _mm256_set1_epi32(quad);
}

LARIAT_AVX2_INLINE __m256i vector_at(const uint8_t* w) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
}

template <int kW>
LARIAT_AVX2_INLINE void fetch_tiles(const uint8_t* w, int64_t distance) {
  for (int b = 0; b < kW; ++b) fetch_ahead<false>(w + b * distance);
}

// Sums of kX rows of x, `columns` bytes apart, times a group of kW tiles of w, `distance` bytes apart: S of
// kernels/quant.h.
template <bool kFetch, int kX, int kW>
LARIAT_AVX2_INLINE void multiply_q8(const int8_t* x, int64_t columns, const uint8_t* w, int64_t distance,
                                    __m256i (&sum)[kX][kW][kHalves]) {
  const __m256i zero = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  for (int64_t quad = 0; quad < kGroupQuads; ++quad) {
    if (kFetch) fetch_tiles<kW>(w + quad * kLineBytes, distance);
    for (int a = 0; a < kX; ++a) {
      const __m256i inputs = quad_at(x + a * columns + 4 * quad), magnitudes = _mm256_abs_epi8(inputs);
      for (int b = 0; b < kW; ++b) {
        for (int h = 0; h < kHalves; ++h) {
          const __m256i bytes = vector_at(w + b * distance + (quad * kHalves + h) * kVectorBytes);
          const __m256i weights = _mm256_sign_epi8(_mm256_xor_si256(bytes, zero), inputs);
          const __m256i pairs = _mm256_maddubs_epi16(magnitudes, weights);
          sum[a][b][h] = _mm256_add_epi32(sum[a][b][h], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
  }
}

// The same, but for the zero of the weights, and sums of even and odd pairs in 16 bits each.
template <bool kFetch, int kX, int kW>
LARIAT_AVX2_INLINE void multiply_q4(const int8_t* x, int64_t columns, const uint8_t* w, int64_t distance,
                                    __m256i (&sum)[kX][kW][kHalves]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int64_t quad = 0; quad < kGroupQuads / 2; ++quad) {
    if (kFetch) fetch_tiles<kW>(w + quad * kLineBytes, distance);
    for (int b = 0; b < kW; ++b) {
      for (int h = 0; h < kHalves; ++h) {
        const __m256i both = vector_at(w + b * distance + (quad * kHalves + h) * kVectorBytes);
        const __m256i low = _mm256_and_si256(both, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        for (int a = 0; a < kX; ++a) {
          const int8_t* inputs = x + a * columns + 4 * quad;
          const __m256i pairs = _mm256_maddubs_epi16(low, quad_at(inputs));
          const __m256i more = _mm256_maddubs_epi16(high, quad_at(inputs + kQuantGroup / 2));
          sum[a][b][h] = _mm256_add_epi16(sum[a][b][h], _mm256_add_epi16(pairs, more));
        }
      }
    }
  }
}

// Adds a group to the sums of a row and of half a tile. scales: the half's, bf16; integers: of
// multiply_*.
template <DType kType>
LARIAT_AVX2_INLINE void add_scaled(const QuantRows& x, int64_t at, const uint8_t* scales, __m256i integers,
                                   float* total) {
  if constexpr (kType != DType::kQ8) {
    const __m256i pairs = _mm256_madd_epi16(integers, _mm256_set1_epi16(1));
    integers = _mm256_add_epi32(pairs, _mm256_set1_epi32(x.offsets[at]));
  }
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
  const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[at]));
  _mm256_store_ps(total, _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), both, _mm256_load_ps(total)));
}

// Group g of rows [first, first + kX) of the task times kW tiles; scales, values: of the first of them, the
// others `distance` bytes apart. total: [tile][row of the task][output], kRows rows of them.
template <DType kType, bool kFetch, int kX, int kW, int kRows>
LARIAT_AVX2_INLINE void add_group(const QuantTask& task, int first, int64_t g, const uint8_t* scales,
                                  const uint8_t* values, int64_t distance, float* total) {
  const int64_t row = task.first_row + first, columns = task.x.columns();
  const int8_t* x = task.x.values + row * columns + g * kQuantGroup;
  __m256i sum[kX][kW][kHalves] = {};
  if constexpr (kType == DType::kQ8) {
    multiply_q8<kFetch, kX, kW>(x, columns, values, distance, sum);
  } else {
    multiply_q4<kFetch, kX, kW>(x, columns, values, distance, sum);
  }
  for (int b = 0; b < kW; ++b) {
    for (int a = 0; a < kX; ++a) {
      float* to = total + (b * kRows + first + a) * kQuantRows;
      for (int h = 0; h < kHalves; ++h) {
        add_scaled<kType>(task.x, (row + a) * task.x.groups() + g,
                          scales + b * distance + h * kHalfScaleBytes, sum[a][b][h], to + h * kHalfRows);
      }
    }
  }
}

// All rows of the task times kTiles of its tiles, `first` and those at its distance from there: that many
// streams of weights side by side, which the processor itself fetches ahead. One alone reads half as fast,
// and instructions that prefetch it do not make up for it.
template <DType kType, int kRows, int kTiles>
LARIAT_AVX2 void dot(const QuantTask& task, int64_t first) {
  constexpr int kFirst = std::min(kRows, kRowsInRegisters);
  constexpr int kTogether = kRows == 1 ? kTiles : 1;  // as many sums as there are registers for
  constexpr bool kFetch = kTiles == kMaxQuantTiles;
  const QuantLayout layout(task.w);
  const int64_t scale_bytes = layout.scale_bytes(), group_bytes = layout.group_bytes();
  const int64_t distance = task.tile_distance * layout.tile_bytes();
  const auto* block = static_cast<const uint8_t*>(task.w.data) + first * layout.tile_bytes();
  alignas(kVectorBytes) float total[kTiles * kRows * kQuantRows] = {};
  for (int64_t g = 0; g < task.x.groups(); ++g) {
    const int64_t half = g % 2;
    for (int b = 0; b < kTiles; b += kTogether) {
      const uint8_t* scales = block + b * distance + half * (scale_bytes / 2);
      const uint8_t* values = block + b * distance + scale_bytes + half * group_bytes;
      float* to = total + b * kRows * kQuantRows;
      add_group<kType, kFetch, kFirst, kTogether, kRows>(task, 0, g, scales, values, distance, to);
      if constexpr (kRows > kFirst) {
        add_group<kType, false, kRows - kFirst, kTogether, kRows>(task, kFirst, g, scales, values, distance,
                                                                  to);
      }
    }
    block += half * layout.block_bytes();
  }
  for (int64_t b = 0; b < kTiles; ++b) {
    const int64_t column = (first + b * task.tile_distance) * kQuantRows;
    const int64_t count = std::min(kQuantRows, task.w.rows - column);
    for (int64_t a = 0; a < kRows; ++a) {
      const float* row = total + (b * kRows + a) * kQuantRows;
      std::copy(row, row + count, task.out.f32(task.first_row + a) + column);
    }
  }
}

template <DType kType>
void dot_task(const QuantTask& task) {
  static_assert(kMaxQuantRows == 2 * kRowsInRegisters);
  with_count<kMaxQuantRows>(task.rows, [&](auto rows) {
    if constexpr (rows <= kFewQuantRows) {
      if (task.tiles == kMaxQuantTiles) return dot<kType, rows, kMaxQuantTiles>(task, task.first_tile);
    }
    for (int64_t b = 0; b < task.tiles; ++b) {
      dot<kType, rows, 1>(task, task.first_tile + b * task.tile_distance);
    }
  });
}

}  // namespace

void quant_dot_avx2(const QuantTask& task) {
  task.w.dtype == DType::kQ8 ? dot_task<DType::kQ8>(task) : dot_task<DType::kQ4>(task);
}

}  // namespace lariat::cpu

#endif
