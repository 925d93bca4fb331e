#include <algorithm>
#include <cstring>

#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_matmul.h"

// AVX2 with VPMADDUBSW: 32 products of unsigned with signed bytes per instruction, added in pairs to 16 bits.
// A pair of weights of 4 bits stays below 2 * 15 * 127, so that all 8 of a group fit 16 bits. One of 8 bits
// may reach 2 * 255 * 127, which saturates, unless the side without a sign is the magnitude of w - 128 and
// its sign goes over to x: 2 * 128 * 127. Of Grouping::narrow a pair stays below 2 * 32 * 127, and four of
// them fit 16 bits. So sums are as exact as those of the other kernels.
#if defined(__x86_64__)
#include <immintrin.h>
#define LARIAT_AVX2 __attribute__((target("avx2,fma,f16c")))
#define LARIAT_AVX2_INLINE LARIAT_AVX2 inline __attribute__((always_inline))
#define LARIAT_AVX2_LAMBDA LARIAT_AVX2 __attribute__((always_inline))

namespace lariat::cpu {
namespace {

constexpr int kHalves = 2;  // vectors of 8 outputs in a tile
constexpr int kRowsInRegisters = 3;
constexpr int64_t kVectorBytes = 32, kHalfRows = kQuantRows / kHalves;
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

// The kind of bytes that are Grouping::narrow.
template <class K>
struct Narrow : K {
  static constexpr bool kNarrow = true;
};

// A sum of codes, of which bytes are taken less 128, narrow ones less their zero, to that of what they stand
// for; x: the sum of x.
template <class K>
LARIAT_AVX2_INLINE __m256i less_zero(const QuantBlock& block, __m256i codes, int32_t x) {
  if (K::kTable || K::kNarrow || (K::kBytes && K::kPlain)) return codes;
  if (K::kPlain) return _mm256_sub_epi32(codes, _mm256_slli_epi32(_mm256_set1_epi32(x), 3));
  return _mm256_add_epi32(codes, _mm256_set1_epi32(((K::kBytes ? 128 : 0) - block.zero) * x));
}

LARIAT_AVX2_INLINE __m256i add_pairs(__m256i sum, __m256i pairs) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Sums of kX rows of x, `columns` bytes apart, times part `part` of a group of kW tiles of w, `distance`
// bytes apart: S of kernels/quant.h, but for less_zero.
template <class K, bool kFetch, int kX, int kW>
LARIAT_AVX2_INLINE void multiply_bytes(const int8_t* x, int64_t columns, const uint8_t* w, int64_t distance,
                                       int part, __m256i zero, __m256i (&sum)[kX][kW][kHalves]) {
  constexpr int64_t kQuads = kGroupQuads / K::kParts;
  constexpr int64_t kRun = K::kNarrow ? 4 : 1;  // quads whose pairs are added in 16 bits
  for (int64_t quad = part * kQuads; quad < (part + 1) * kQuads; quad += kRun) {
    __m256i pairs[kX][kW][kHalves] = {};
    for (int64_t q = quad; q < quad + kRun; ++q) {
      if (kFetch) fetch_tiles<kW>(w + q * kLineBytes, distance);
      for (int b = 0; b < kW; ++b) {
        for (int h = 0; h < kHalves; ++h) {
          const __m256i bytes = vector_at(w + b * distance + (q * kHalves + h) * kVectorBytes);
          const __m256i weights = _mm256_xor_si256(bytes, zero), magnitudes = _mm256_abs_epi8(weights);
          for (int a = 0; a < kX; ++a) {
            const __m256i inputs = _mm256_sign_epi8(quad_at(x + a * columns + 4 * q), weights);
            pairs[a][b][h] = _mm256_add_epi16(pairs[a][b][h], _mm256_maddubs_epi16(magnitudes, inputs));
          }
        }
      }
    }
    for (int b = 0; b < kW; ++b) {
      for (int h = 0; h < kHalves; ++h) {
        for (int a = 0; a < kX; ++a) sum[a][b][h] = add_pairs(sum[a][b][h], pairs[a][b][h]);
      }
    }
  }
}

// The same of nibbles; linear ones: sums of even and odd pairs in 16 bits each.
template <class K, bool kFetch, int kX, int kW>
LARIAT_AVX2_INLINE void multiply_nibbles(const int8_t* x, int64_t columns, const uint8_t* w, int64_t distance,
                                         int part, __m256i table, __m256i (&sum)[kX][kW][kHalves]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const auto add = [&](__m256i& to, __m256i codes, const int8_t* inputs) LARIAT_AVX2_LAMBDA {
    const __m256i quad = quad_at(inputs);
    if constexpr (K::kTable) {
      const __m256i weights = _mm256_shuffle_epi8(table, codes);
      to = add_pairs(to, _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(quad, weights)));
    } else {
      to = _mm256_add_epi16(to, _mm256_maddubs_epi16(codes, quad));
    }
  };
  for (int64_t quad = 0; quad < kGroupQuads / 2; ++quad) {
    if (kFetch && part == 0) fetch_tiles<kW>(w + quad * kLineBytes, distance);
    for (int b = 0; b < kW; ++b) {
      for (int h = 0; h < kHalves; ++h) {
        const __m256i both = vector_at(w + b * distance + (quad * kHalves + h) * kVectorBytes);
        const __m256i low = _mm256_and_si256(both, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        for (int a = 0; a < kX; ++a) {
          const int8_t* inputs = x + a * columns + 4 * quad;
          if (K::kParts == 1 || part == 0) add(sum[a][b][h], low, inputs);
          if (K::kParts == 1 || part == 1) add(sum[a][b][h], high, inputs + kQuantGroup / 2);
        }
      }
    }
  }
}

// Half `half` of 16 scales, or minima.
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
    case ScaleType::kNested:
      break;
  }
  const __m256 small = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at(inner, 1))));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(at(outer, 2))), small);
}

// The sums of a part of a group as they are added to the sums of a row: its scale, the sum of its x.
struct OfX {
  float scale;
  int sum;
};

// One row and half a tile: scale and minimum of kernels/quant.h.
template <class K>
LARIAT_AVX2_INLINE void add_scaled(const QuantBlock& block, const OfX& x, __m256 scale, const __m256* minimum,
                                   __m256i integers, float* total) {
  if constexpr (!K::kBytes && !K::kTable) integers = _mm256_madd_epi16(integers, _mm256_set1_epi16(1));
  integers = less_zero<K>(block, integers, x.sum);
  const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale));
  __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), both, _mm256_load_ps(total));
  if (minimum != nullptr) {
    sum = _mm256_fmadd_ps(*minimum, _mm256_set1_ps(x.scale * static_cast<float>(x.sum)), sum);
  }
  _mm256_store_ps(total, sum);
}

// What add_group takes of a task: `place` of the group in its block, at `blocks` in the first of the tiles,
// the others `distance` bytes apart; group g of x.
struct GroupPlace {
  const QuantTask& task;
  const QuantBlock& block;
  int64_t g, place;
  const uint8_t* blocks;
  int64_t distance;
};

// The group for rows [first, first + kX) of the task times kW tiles. total: [tile][row of the task][output],
// kRows rows of them.
template <class K, bool kFetch, int kX, int kW, int kRows>
LARIAT_AVX2_INLINE void add_group(const GroupPlace& p, int first, __m256i table, float* total) {
  const QuantRows& rows = p.task.x;
  const int64_t row = p.task.first_row + first, columns = rows.columns();
  const int8_t* x = rows.values + row * columns + p.g * kQuantGroup;
  const uint8_t* values = p.blocks + p.block.scale_bytes + p.place * p.block.group_bytes;
  const __m256i zero = _mm256_set1_epi8(static_cast<int8_t>(K::kNarrow ? p.block.zero : 128));
  for (int part = 0; part < K::kParts; ++part) {
    __m256i sum[kX][kW][kHalves] = {};
    if constexpr (K::kBytes) {
      multiply_bytes<K, kFetch>(x, columns, values, p.distance, part, zero, sum);
    } else {
      multiply_nibbles<K, kFetch>(x, columns, values, p.distance, part, table, sum);
    }
    OfX of_x[kX];
    for (int a = 0; a < kX; ++a) {
      const int64_t at = (row + a) * rows.groups + p.g;
      const int32_t* sums = rows.sums + 2 * at;
      of_x[a] = {rows.scales[at], K::of_x(sums, part)};
    }
    const ScaleType type = K::kPlain ? ScaleType::kBF16 : p.block.scales;
    const int64_t scales = K::kPlain ? p.place * kQuantRows * 2
                                     : p.block.scales_at(p.place * kQuantGroup + part * kQuantGroup / 2);
    for (int b = 0; b < kW; ++b) {
      const uint8_t *outer = p.blocks + b * p.distance, *inner = outer + scales;
      for (int h = 0; h < kHalves; ++h) {
        const __m256 scale = scales_at(type, inner, outer, h);
        __m256 minimum = scale;
        const bool minima = !K::kPlain && p.block.minimum;
        if (minima) minimum = scales_at(type, inner + p.block.inner_bytes, outer + 2 * kQuantRows, h);
        for (int a = 0; a < kX; ++a) {
          add_scaled<K>(p.block, of_x[a], scale, minima ? &minimum : nullptr, sum[a][b][h],
                        total + (b * kRows + first + a) * kQuantRows + h * kHalfRows);
        }
      }
    }
  }
}

// All rows of the task times kTiles of its tiles, `first` and those at its distance from there: that many
// streams of weights side by side, which the processor itself fetches ahead. One alone reads half as fast,
// and instructions that prefetch it do not make up for it.
template <class K, int kRows, int kTiles>
LARIAT_AVX2 void dot(const QuantTask& task, const QuantBlock& of_block, int64_t first) {
  constexpr int kFirst = std::min(kRows, kRowsInRegisters);
  constexpr int kTogether = kRows == 1 ? kTiles : 1;  // as many sums as there are registers for
  constexpr bool kFetch = kTiles == kMaxQuantTiles;
  const QuantLayout layout(task.w);
  const int64_t groups = K::kPlain ? kQuantBlock / kQuantGroup : of_block.groups, all = layout.groups();
  const int64_t distance = task.tile_distance * layout.tile_bytes();
  const auto* block = static_cast<const uint8_t*>(task.w.data) + first * layout.tile_bytes();
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(of_block.table.data())));
  alignas(kVectorBytes) float total[kTiles * kRows * kQuantRows] = {};
  for (int64_t top = 0; top < all; top += groups, block += of_block.block_bytes) {
    for (int64_t place = 0; place < groups; ++place) {
      for (int b = 0; b < kTiles; b += kTogether) {
        const GroupPlace at{task, of_block, top + place, place, block + b * distance, distance};
        float* to = total + b * kRows * kQuantRows;
        add_group<K, kFetch, kFirst, kTogether, kRows>(at, 0, table, to);
        if constexpr (kRows > kFirst) {
          add_group<K, false, kRows - kFirst, kTogether, kRows>(at, kFirst, table, to);
        }
      }
    }
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

template <class K>
void dot_task(const QuantTask& task, const QuantBlock& block) {
  static_assert(kMaxQuantRows == 2 * kRowsInRegisters);
  with_count<kMaxQuantRows>(task.rows, [&](auto rows) {
    if constexpr (rows <= kFewQuantRows) {
      if (task.tiles == kMaxQuantTiles) return dot<K, rows, kMaxQuantTiles>(task, block, task.first_tile);
    }
    for (int64_t b = 0; b < task.tiles; ++b) {
      dot<K, rows, 1>(task, block, task.first_tile + b * task.tile_distance);
    }
  });
}

}  // namespace

void quant_dot_avx2(const QuantTask& task) {
  with_kind(QuantBlock(task.w), [&]<class K>(const QuantBlock& block, K) {
    if constexpr (K::kBytes && !K::kPlain) {
      if (block.narrow) return dot_task<Narrow<K>>(task, block);
    }
    dot_task<K>(task, block);
  });
}

}  // namespace lariat::cpu

#endif
