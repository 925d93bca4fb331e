#pragma once
#include <algorithm>

#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/quant_avx2.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_matmul.h"

// AVX2 with VPMADDUBSW: products of unsigned by signed bytes, added in pairs to 16 bits. A pair of 4-bit
// weights is at most 2 * 15 * 127: all 8 pairs of a group fit 16 bits. For 8-bit weights, 2 * 255 * 127 could
// saturate: the unsigned operand is |w - 128|, with its sign moved to x. Values of 6 bits and, counted from
// 32 below their zero, of Grouping::narrow are at most 64; two pairs fit 16 bits, and four of 5 bits. Sums
// are thus exact. With nested scales, 16-bit pairs are multiplied by the small integers while they are added
// to 32 bits.
#if defined(__x86_64__)

namespace lariat::cpu::avx2 {

constexpr int kRowsInRegisters = 3;
constexpr int64_t kGroupQuads = kQuantGroup / 4;
constexpr int kNarrowZero = 32;  // zero point of narrow values, from their minimum

template <class K>
struct Narrow : K {
  static constexpr bool kNarrow = true;
};
template <class K, bool kPairs_ = false>
struct Nested : K {
  static constexpr bool kNested = true, kPairs = kPairs_;
};

// Sums of a group: one per part with its own scale, or one with nested scales.
template <class K>
constexpr int kSums = K::kNested ? 1 : K::kParts;
template <class K, int kX, int kW>
using Sums = __m256i[kX][kW][kHalves][kSums<K>];
// Factors of 16-bit sums: nested small integers in each half of a lane.
template <class K, int kW>
using Small = __m256i[kW][kHalves][K::kParts];

template <class K>
LARIAT_AVX2_INLINE void add_pairs(__m256i (&sum)[kSums<K>], __m256i pairs, const __m256i (&by)[K::kParts],
                                  int part) {
  __m256i& to = sum[K::kNested ? 0 : part];
  to = _mm256_add_epi32(to, _mm256_madd_epi16(pairs, K::kNested ? by[part] : _mm256_set1_epi16(1)));
}

// Rows of x, `columns` bytes apart, and a group of tiles of w, `distance` bytes apart. base is subtracted
// from the bytes.
struct GroupBytes {
  const int8_t* x;
  int64_t columns;
  const uint8_t* w;
  int64_t distance;
  __m256i base, table;
};

template <class K, bool kFetch, int kX, int kW>
LARIAT_AVX2_INLINE void multiply_bytes(const GroupBytes& from, const Small<K, kW>& by, Sums<K, kX, kW>& sum) {
  constexpr bool kUnsigned = K::kPlanes || K::kNarrow;
  // Quads whose pairs are added in 16 bits.
  constexpr int kEnd = kGroupQuads, kRun = K::kPlanes && K::kBits < 6 ? 4 : kUnsigned ? 2 : 1;
  unroll<0, kEnd, kRun>([&](auto first) LARIAT_AVX2_LAMBDA {
    __m256i pairs[kX][kW][kHalves] = {};
    unroll<first, first + kRun, 1>([&](auto quad) LARIAT_AVX2_LAMBDA {
      for (int b = 0; b < kW; ++b) {
        if (kFetch && quad < K::kBits) fetch_ahead<false>(from.w + b * from.distance + quad * kLineBytes);
        for (int h = 0; h < kHalves; ++h) {
          __m256i codes = codes_at<K::kBits, quad>(from.w + b * from.distance + h * kVectorBytes);
          if (!K::kPlanes) codes = _mm256_sub_epi8(codes, from.base);
          const __m256i magnitudes = kUnsigned ? codes : _mm256_abs_epi8(codes);
          for (int a = 0; a < kX; ++a) {
            __m256i inputs = quad_at(from.x + a * from.columns + 4 * quad);
            if (!kUnsigned) inputs = _mm256_sign_epi8(inputs, codes);
            pairs[a][b][h] = _mm256_add_epi16(pairs[a][b][h], _mm256_maddubs_epi16(magnitudes, inputs));
          }
        }
      }
    });
    for (int b = 0; b < kW; ++b) {
      for (int h = 0; h < kHalves; ++h) {
        for (int a = 0; a < kX; ++a)
          add_pairs<K>(sum[a][b][h], pairs[a][b][h], by[b][h], first * K::kParts / kEnd);
      }
    }
  });
}

// Linear values are added in 16 bits until the end of the part. With many tiles the parts run one after
// another, as registers allow.
template <class K, bool kFetch, int kX, int kW>
LARIAT_AVX2_INLINE void multiply_nibbles(const GroupBytes& from, const Small<K, kW>& by,
                                         Sums<K, kX, kW>& sum) {
  constexpr int kPasses = kX * kW > kRowsInRegisters ? K::kParts : 1, kTogether = K::kParts / kPasses;
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int pass = 0; pass < kPasses; ++pass) {
    __m256i pairs[kX][kW][kHalves][kTogether] = {};
    const auto add = [&](int a, int b, int h, __m256i codes, int64_t quad, int side) LARIAT_AVX2_LAMBDA {
      if (kPasses == 2 && side != pass) return;
      const __m256i inputs = quad_at(from.x + a * from.columns + 4 * quad + side * (kQuantGroup / 2));
      if constexpr (K::kTable) {
        const __m256i weights = _mm256_shuffle_epi8(from.table, codes);
        const __m256i signs = _mm256_sign_epi8(inputs, weights);
        add_pairs<K>(sum[a][b][h], _mm256_maddubs_epi16(_mm256_abs_epi8(weights), signs), by[b][h],
                     K::kParts == 1 ? 0 : side);
      } else {
        __m256i& to = pairs[a][b][h][kTogether == 1 ? 0 : side];
        to = _mm256_add_epi16(to, _mm256_maddubs_epi16(codes, inputs));
      }
    };
    for (int64_t quad = 0; quad < kGroupQuads / 2; ++quad) {
      for (int b = 0; b < kW; ++b) {
        if (kFetch && pass == 0) fetch_ahead<false>(from.w + b * from.distance + quad * kLineBytes);
        for (int h = 0; h < kHalves; ++h) {
          const __m256i both = vector_at(from.w + b * from.distance + (quad * kHalves + h) * kVectorBytes);
          const __m256i low = _mm256_and_si256(both, nibble);
          const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
          for (int a = 0; a < kX; ++a) {
            add(a, b, h, low, quad, 0);
            add(a, b, h, high, quad, 1);
          }
        }
      }
    }
    for (int a = 0; !K::kTable && a < kX; ++a) {
      for (int b = 0; b < kW; ++b) {
        for (int h = 0; h < kHalves; ++h) {
          for (int t = 0; t < kTogether; ++t) {
            add_pairs<K>(sum[a][b][h], pairs[a][b][h][t], by[b][h], pass + t);
          }
        }
      }
    }
  }
}

// Scale of a group of a row of x, and the sums of its parts.
struct OfX {
  float scale;
  int32_t sums[2];
};

// inner: the group's first scale in the tile's block, which starts at `block`; totals are kQuantRows apart.
template <class K, int kX, int kW>
struct Half {
  const QuantBlock& of_block;
  const uint8_t *block, *inner;
  int b, half;
  const OfX (&x)[kX];
  const Sums<K, kX, kW>& sum;
  float* total;
};

// Zero point; times the sum of x, it is subtracted from the sums.
template <class K>
LARIAT_AVX2_INLINE int zero_of(const QuantBlock& block) {
  if (K::kTable || (K::kBits == 8 && K::kPlain)) return 0;
  if (K::kNarrow) return block.zero == 0 ? 0 : kNarrowZero;
  return K::kPlain ? 8 : K::kBits == 8 ? block.zero - 128 : block.zero;
}

// minimum: may be null.
LARIAT_AVX2_INLINE void add_scaled(__m256i integers, __m256 scale, __m256i sums, const __m256* minimum,
                                   float x_scale, float* total) {
  const __m256 x = _mm256_set1_ps(x_scale);
  __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), _mm256_mul_ps(scale, x), _mm256_load_ps(total));
  if (minimum != nullptr) {
    sum = _mm256_fmadd_ps(*minimum, _mm256_mul_ps(x, _mm256_cvtepi32_ps(sums)), sum);
  }
  _mm256_store_ps(total, sum);
}

template <class K, int kX, int kW>
LARIAT_AVX2_INLINE void add_parts(const Half<K, kX, kW>& of) {
  const QuantBlock& block = of.of_block;
  const ScaleType type = K::kPlain ? ScaleType::kBF16 : block.scales;
  const __m256i zero = _mm256_set1_epi32(zero_of<K>(block));
  for (int part = 0; part < K::kParts; ++part) {
    const uint8_t* inner = of.inner + part * kQuantRows * block.scale_width;
    const __m256 scale = scales_at(type, inner, of.block, of.half);
    __m256 minimum = scale;
    const bool minima = !K::kPlain && block.minimum;
    if (minima) minimum = scales_at(type, inner + block.inner_bytes, of.block + 2 * kQuantRows, of.half);
    for (int a = 0; a < kX; ++a) {
      const __m256i sums = _mm256_set1_epi32(of.x[a].sums[part]);
      __m256i integers = of.sum[a][of.b][of.half][part];
      if (zero_of<K>(block) != 0) integers = _mm256_sub_epi32(integers, _mm256_mullo_epi32(sums, zero));
      add_scaled(integers, scale, sums, minima ? &minimum : nullptr, of.x[a].scale,
                 of.total + a * kQuantRows);
    }
  }
}

// Nested scales: the sums already include the small integers.
template <class K, int kX, int kW>
LARIAT_AVX2_INLINE void add_nested(const Half<K, kX, kW>& of) {
  const QuantBlock& block = of.of_block;
  const auto pairs_at = [&](const uint8_t* inner, auto minimum) LARIAT_AVX2_LAMBDA {
    const auto small = [&](int part) LARIAT_AVX2_LAMBDA {
      return small_at<K, minimum()>(inner + part * kQuantRows, of.half);
    };
    return pair_of(small(0), K::kParts == 1 ? _mm256_setzero_si256() : small(1));
  };
  const __m256 scale = scales_at(ScaleType::kF16, of.block, nullptr, of.half);
  const __m256i zero = _mm256_set1_epi32(zero_of<K>(block));
  __m256 minimum = scale;
  __m256i scales{}, minima{};
  if (zero_of<K>(block) != 0) scales = pairs_at(of.inner, std::false_type());
  if (block.minimum) {
    minimum = scales_at(ScaleType::kF16, of.block + 2 * kQuantRows, nullptr, of.half);
    minima = pairs_at(of.inner + block.inner_bytes, std::true_type());
  }
  for (int a = 0; a < kX; ++a) {
    const __m256i sums = pair_of(_mm256_set1_epi32(of.x[a].sums[0]), _mm256_set1_epi32(of.x[a].sums[1]));
    __m256i integers = of.sum[a][of.b][of.half][0];
    if (zero_of<K>(block) != 0) {
      integers = _mm256_sub_epi32(integers, _mm256_mullo_epi32(_mm256_madd_epi16(scales, sums), zero));
    }
    add_scaled(integers, scale, _mm256_madd_epi16(minima, sums), block.minimum ? &minimum : nullptr,
               of.x[a].scale, of.total + a * kQuantRows);
  }
}

// Group g of x, at index `place` of its block; `blocks`: the block in the first of the tiles, `distance`
// bytes apart.
struct GroupPlace {
  const QuantTask& task;
  const QuantBlock& block;
  int64_t g, place;
  const uint8_t* blocks;
  int64_t distance;
};

// Rows [first, first + kX) of the task times kW tiles. total: [tile][row of the task][output].
template <class K, bool kFetch, int kX, int kW, int kRows>
LARIAT_AVX2_INLINE void add_group(const GroupPlace& p, int first, __m256i table, float* total) {
  const QuantRows& rows = p.task.x;
  const int64_t row = p.task.first_row + first;
  const int base = !K::kNarrow ? 128 : p.block.zero == 0 ? 0 : p.block.zero - kNarrowZero;
  const GroupBytes from{rows.values + row * rows.columns() + p.g * kQuantGroup,
                        rows.columns(),
                        p.blocks + p.block.scale_bytes + p.place * p.block.group_bytes,
                        p.distance,
                        _mm256_set1_epi8(static_cast<int8_t>(base)),
                        table};
  const uint8_t* const scales =
      p.blocks + (K::kPlain ? p.place * kQuantRows * 2 : p.block.scales_at(p.place * kQuantGroup));
  Small<K, kW> by;
  for (int b = 0; K::kNested && b < kW; ++b) {
    for (int h = 0; h < kHalves; ++h) {
      for (int part = 0; part < K::kParts; ++part) {
        const __m256i small = small_at<K, false>(scales + b * p.distance + part * kQuantRows, h);
        by[b][h][part] = pair_of(small, small);
      }
    }
  }
  Sums<K, kX, kW> sum = {};
  if constexpr (K::kPlanes || K::kBits == 8) {
    multiply_bytes<K, kFetch, kX, kW>(from, by, sum);
  } else {
    multiply_nibbles<K, kFetch, kX, kW>(from, by, sum);
  }
  OfX x[kX];
  for (int a = 0; a < kX; ++a) {
    const int64_t at = (row + a) * rows.groups + p.g;
    const int32_t* sums = rows.sums + 2 * at;
    x[a] = {rows.scales[at], {K::of_x(sums, 0), K::kParts == 1 ? 0 : K::of_x(sums, 1)}};
  }
  for (int b = 0; b < kW; ++b) {
    for (int h = 0; h < kHalves; ++h) {
      const Half<K, kX, kW> half{p.block,
                                 p.blocks + b * p.distance,
                                 scales + b * p.distance,
                                 b,
                                 h,
                                 x,
                                 sum,
                                 total + (b * kRows + first) * kQuantRows + h * kHalfRows};
      if constexpr (K::kNested) {
        add_nested<K, kX, kW>(half);
      } else {
        add_parts<K, kX, kW>(half);
      }
    }
  }
}

// kTiles parallel streams of weights: a single stream reads half as fast, even with prefetch instructions.
template <class K, int kRows, int kTiles>
LARIAT_AVX2 void dot(const QuantTask& task, const QuantBlock& of_block, int64_t first) {
  constexpr int kFirst = std::min(kRows, kRowsInRegisters);
  // The registers limit the number of sums.
  constexpr int kTogether = kRows == 1 ? kTiles : 1;  // NOLINT(bugprone-branch-clone): equal for one tile
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
    for (int64_t a = 0; a < kRows; ++a) task.store(a, column, total + (b * kRows + a) * kQuantRows);
  }
}

template <class K>
constexpr bool has_kernel(ScaleType scales) {
  return !K::kPlanes || unpacks(K::kBits, K::kParts == 2, scales);
}

template <class K>
void dot_task(const QuantTask& task, const QuantBlock& block) {
  static_assert(kMaxQuantRows == 2 * kRowsInRegisters);
  with_count<K::kPlanes ? kFewQuantRows : kMaxQuantRows>(task.rows, [&](auto rows) {
    if constexpr (rows <= kFewQuantRows) {
      if (task.tiles == kMaxQuantTiles) return dot<K, rows, kMaxQuantTiles>(task, block, task.first_tile);
    }
    for (int64_t b = 0; b < task.tiles; ++b) {
      dot<K, rows, 1>(task, block, task.first_tile + b * task.tile_distance);
    }
  });
}

// Instantiates the kinds that `Has` accepts.
template <class Has>
void dot_kinds(const QuantTask& task, const Has&) {
  with_kind<true>(QuantBlock(task.w), [&]<class K>(const QuantBlock& block, K) {
    if constexpr (Has()(K())) {
      const bool nested = block.scales == ScaleType::kNested;
      if constexpr (K::kBits == 8 && !K::kPlain) {
        if (block.narrow && nested) return dot_task<Nested<Narrow<K>>>(task, block);
        if (block.narrow) return dot_task<Narrow<K>>(task, block);
      } else if constexpr (!K::kTable && !K::kPlain) {
        if constexpr (has_kernel<K>(ScaleType::kPairs))
          if (block.scales == ScaleType::kPairs) return dot_task<Nested<K, true>>(task, block);
        if constexpr (has_kernel<K>(ScaleType::kNested))
          if (nested) return dot_task<Nested<K>>(task, block);
      }
      if constexpr (has_kernel<K>(ScaleType::kF16)) dot_task<K>(task, block);
    }
  });
}

void dot_nibbles(const QuantTask& task);
void dot_planes(const QuantTask& task);

}  // namespace lariat::cpu::avx2

#endif
