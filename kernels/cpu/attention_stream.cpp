#include <algorithm>
#include <limits>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/fetch_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_stream.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

constexpr int64_t kLanes = hn::MaxLanes(F32());

// kAttentionKeys positions of one head, of which some row sees [first, last).
struct Span {
  int64_t base;         // the first position
  int64_t first, last;  // relative to base
  int64_t stride;       // elements from one position to the next: a multiple of the vector length
};

// Vectors of a head whose sums over positions fill the registers, with four rows: 32 of them with AVX-512,
// else 16.
constexpr int64_t kWide = kLanes >= 16 ? 4 : 2;

// Lane i of the result is the sum of the lanes of tile[i].
#if HWY_TARGET == HWY_AVX2
// Twice inside of the halves, which costs half of what moving lanes across them does, then the halves.
template <int64_t kCount>
HWY_INLINE VF32 SumsOfLanes(VF32* tile) {
  static_assert(kCount == 8);
  const F32 d;
  const hn::Repartition<double, F32> pairs;
  VF32 halves[2];
  Unroll<2>([&](auto h) LARIAT_INLINE_BODY {
    VF32 two[2];
    Unroll<2>([&](auto i) LARIAT_INLINE_BODY {
      const VF32 a = tile[4 * h + 2 * i], b = tile[4 * h + 2 * i + 1];
      two[i] = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    });
    const auto a = hn::BitCast(pairs, two[0]), b = hn::BitCast(pairs, two[1]);
    halves[h] = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                        hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
  });
  return hn::Add(hn::ConcatLowerLower(d, halves[1], halves[0]),
                 hn::ConcatUpperUpper(d, halves[1], halves[0]));
}
#else
// log2(kCount) rounds of adding neighbours.
template <int64_t kCount>
HWY_INLINE VF32 SumsOfLanes(VF32* tile) {
  if constexpr (kCount > 1) {
    Unroll<kCount / 2>([&](auto i) LARIAT_INLINE_BODY {
      const VF32 low = tile[2 * i], high = tile[2 * i + 1];
      tile[i] = hn::Add(EvenLanes(low, high), OddLanes(low, high));
    });
    return SumsOfLanes<kCount / 2>(tile);
  }
  return tile[0];
}
#endif

// scores[r][j] = q[r] . keys[j] for kRows query rows; keys are taken so many at a time that the tile has one
// accumulator per lane of the vector that its sums end up in.
template <int64_t kRows, typename T>
HWY_NOINLINE void Scores(const float* q, int64_t q_stride, const T* keys, const Span& span, float* scores) {
  constexpr int64_t kKeys = kLanes / kRows;
  const F32 d;
  HWY_ALIGN float sums[kLanes];
  for (int64_t key = span.first / 16 * 16; key < span.last; key += kKeys) {
    const T* k = keys + key * span.stride;
    VF32 tile[kLanes];
    Unroll<kLanes>([&](auto i) LARIAT_INLINE_BODY { tile[i] = hn::Zero(d); });
    for (int64_t i = 0; i < span.stride; i += kLanes) {
      VF32 query[kRows];
      Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY { query[r] = hn::LoadU(d, q + r * q_stride + i); });
      Unroll<kKeys>([&](auto j) LARIAT_INLINE_BODY {
        const VF32 values = LoadF32(d, k + j * span.stride + i);
        Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
          tile[r * kKeys + j] = hn::MulAdd(query[r], values, tile[r * kKeys + j]);
        });
      });
    }
    hn::Store(SumsOfLanes<kLanes>(tile), d, sums);
    Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
      std::copy_n(sums + r * kKeys, kKeys, scores + r * kAttentionKeys + key);
    });
  }
}

// acc[r] = acc[r] * factors[r] + sum_j weights[r][j] values[j] over kVectors vectors of the head.
template <int64_t kRows, int64_t kVectors, typename T>
HWY_NOINLINE void Values(const float* weights, const float* factors, const T* values, const Span& span,
                         float* acc, int64_t acc_stride) {
  const F32 d;
  VF32 tile[kRows * kVectors];
  Unroll<kRows * kVectors>([&](auto n) LARIAT_INLINE_BODY {
    constexpr int64_t r = n / kVectors, i = n % kVectors;
    tile[n] = hn::Mul(hn::LoadU(d, acc + r * acc_stride + i * kLanes), hn::Set(d, factors[r]));
  });
  for (int64_t key = span.first; key < span.last; ++key) {
    const T* v = values + key * span.stride;
    VF32 weight[kRows];
    Unroll<kRows>([&](auto r)
                      LARIAT_INLINE_BODY { weight[r] = hn::Set(d, weights[r * kAttentionKeys + key]); });
    Unroll<kVectors>([&](auto i) LARIAT_INLINE_BODY {
      const VF32 value = LoadF32(d, v + i * kLanes);
      Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
        tile[r * kVectors + i] = hn::MulAdd(weight[r], value, tile[r * kVectors + i]);
      });
    });
  }
  Unroll<kRows * kVectors>([&](auto n) LARIAT_INLINE_BODY {
    constexpr int64_t r = n / kVectors, i = n % kVectors;
    hn::StoreU(tile[n], d, acc + r * acc_stride + i * kLanes);
  });
}

// The two products for 4, 2 or 1 rows from `row` on.
template <typename T>
void ScoreRows(const AttentionTask& task, const T* keys, const Span& span, int64_t row, int64_t count,
               float* scores) {
  const float* q = task.q + row * task.stride;
  if constexpr (kLanes >= 4) {
    if (count == 4) return Scores<4>(q, task.stride, keys, span, scores);
    if (count == 2) return Scores<2>(q, task.stride, keys, span, scores);
  }
  Scores<1>(q, task.stride, keys, span, scores);
}

template <int64_t kVectors, typename T>
HWY_INLINE void ValueRows(const AttentionTask& task, const float* weights, const float* factors,
                          const T* values, const Span& span, int64_t count, float* acc) {
  if (count == 4) return Values<4, kVectors>(weights, factors, values, span, acc, task.stride);
  if (count == 2) return Values<2, kVectors>(weights, factors, values, span, acc, task.stride);
  Values<1, kVectors>(weights, factors, values, span, acc, task.stride);
}

template <typename T>
void WeighRows(const AttentionTask& task, const float* weights, const float* factors, const T* values,
               const Span& span, int64_t row, int64_t count) {
  float* acc = task.acc + row * task.stride;
  int64_t at = 0;
  for (; at + kWide * kLanes <= span.stride; at += kWide * kLanes) {
    ValueRows<kWide>(task, weights, factors, values + at, span, count, acc + at);
  }
  for (; at < span.stride; at += kLanes) {
    ValueRows<1>(task, weights, factors, values + at, span, count, acc + at);
  }
}

// Asks for one of task.rows shares of the keys and values of the next kAttentionKeys positions, which are
// multiplied some microseconds later: many rows give the processor so much to do with each block that it
// does not look ahead by itself.
void FetchShare(const AttentionTask& task, const Stored& next, int64_t share) {
  const int64_t positions = kAttentionKeys * task.layer->head_dim;
  const auto fetch = [&](const void* from, int64_t bytes) {
    const int64_t lines = ceil_div(bytes, cpu::kLineBytes);
    for (int64_t line = lines * share / task.rows; line < lines * (share + 1) / task.rows; ++line) {
      __builtin_prefetch(static_cast<const char*>(from) + line * cpu::kLineBytes, 0, 2);
    }
  };
  fetch(next.k, positions * static_cast<int64_t>(size_of(next.k_dtype)));
  fetch(next.v, positions * (next.v_scales != nullptr ? 1 : static_cast<int64_t>(size_of(next.v_dtype))));
}

void Attend(const AttentionTask& task, const Stored& stored, const Span& span, const Stored* next) {
  HWY_ALIGN float scores[4 * kAttentionKeys];
  float factors[4];
  for (int64_t row = 0, count = 0; row < task.rows; row += count) {
    const int64_t left = task.rows - row;
    count = kLanes < 4 ? 1 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    WithDType(stored.k, stored.k_dtype,
              [&](const auto* keys) HWY_ATTR { ScoreRows(task, keys, span, row, count, scores); });
    for (int64_t r = 0; r < count; ++r) {
      factors[r] = SoftmaxStep(task, row + r, span.base, scores + r * kAttentionKeys);
      if (next != nullptr) FetchShare(task, *next, row + r);
    }
    WithDType(stored.v, stored.v_dtype, [&](const auto* values) HWY_ATTR {
      WeighRows(task, scores, factors, values, span, row, count);
    });
  }
}

void Stream(const AttentionTask& task) {
  const int64_t head_dim = task.layer->head_dim;
  const int64_t begin = std::max(task.first_key, task.begin(0));
  const int64_t end = std::min(task.last_key, task.end(task.rows - 1));
  for (int64_t base = begin / kAttentionKeys * kAttentionKeys; base < end; base += kAttentionKeys) {
    Stored stored = StoredAt(task, base);
    Span span{base, std::max(begin - base, int64_t{0}), std::min(end - base, kAttentionKeys), head_dim};
    float* k = task.scratch;
    float* v = task.scratch + kAttentionKeys * task.stride;
    if (head_dim % kLanes != 0) {
      Widen(stored.k, stored.k_dtype, span.first, span.last, head_dim, task.stride, k);
      WidenValues(stored, span.first, span.last, head_dim, task.stride, v);
      stored = {k, v, DType::kF32, DType::kF32, nullptr};
      span.stride = task.stride;
    } else if (stored.v_dtype == DType::kQ8) {
      WidenValues(stored, span.first, span.last, head_dim, head_dim, v);
      stored = {stored.k, v, stored.k_dtype, DType::kF32, nullptr};
    }
    const bool more = base + kAttentionKeys < end;
    const Stored next = more ? StoredAt(task, base + kAttentionKeys) : Stored{};
    Attend(task, stored, span, more ? &next : nullptr);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(Stream);

void attention_stream(const AttentionTask& task) { HWY_DYNAMIC_DISPATCH(Stream)(task); }

}  // namespace lariat
#endif  // HWY_ONCE
