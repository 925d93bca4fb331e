#include <algorithm>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/fetch_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_stream.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// kAttentionKeys positions of one head; some row sees [first, last).
struct Span {
  int64_t base;
  int64_t first, last;  // relative to base
  int64_t stride;       // elements between positions

  int64_t scored_first() const { return first / kLanes * kLanes; }
  int64_t scored_last() const { return round_up(last, kLanes); }
};

// Vectors of a head whose sums fill the registers with four rows.
constexpr int64_t kWide = kLanes >= 16 ? 4 : 2;

// Lane i of the result is the sum of the lanes of tile[i].
#if HWY_TARGET == HWY_AVX2
// Adds twice within the halves, at half the cost of crossing them.
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

// Rows per pass over the keys. Eight fill 16 registers; with AVX-512 four are as fast.
constexpr int64_t kTileRows = kLanes >= 16 ? 4 : kLanes;
static_assert(kTileRows <= kAttentionStreamTile);

// Prefetches part of the next block, k_bytes and v_bytes per position of this one: with many rows, the
// hardware prefetcher does not run ahead. Keys and values in turn are faster than one after the other.
struct Ahead {
  const char* k = nullptr;
  const char* v = nullptr;
  int64_t k_bytes = 0, v_bytes = 0;

  // Called for every kStep positions.
  template <int64_t kStep>
  HWY_INLINE void fetch(int64_t key) const {
    constexpr int64_t kKeys = std::max<int64_t>(kStep, 8);  // at once
    if (key % kKeys != 0) return;
    for (int64_t i = 0; i < kKeys * k_bytes; i += cpu::kLineBytes)
      __builtin_prefetch(k + key * k_bytes + i, 0, 2);
    for (int64_t i = 0; i < kKeys * v_bytes; i += cpu::kLineBytes)
      __builtin_prefetch(v + key * v_bytes + i, 0, 2);
  }
  Ahead share(int64_t part, int64_t parts) const {
    return {k + part * (kAttentionKeys * k_bytes / parts), v + part * (kAttentionKeys * v_bytes / parts),
            k_bytes / parts, v_bytes / parts};
  }
};

// scores[j][r] = q[r] . keys[j], with one accumulator per lane of the result.
template <int64_t kRows, typename T>
HWY_NOINLINE void Scores(const float* q, int64_t q_stride, const T* keys, const Span& span, const Ahead ahead,
                         float* scores) {
  constexpr int64_t kKeys = kLanes / kRows;
  const F32 d;
  const int64_t stride = span.stride, last = span.scored_last();
  for (int64_t key = span.scored_first(); key < last; key += kKeys) {
    const T* k = keys + key * stride;
    ahead.fetch<kKeys>(key);
    VF32 tile[kLanes];
    Unroll<kLanes>([&](auto i) LARIAT_INLINE_BODY { tile[i] = hn::Zero(d); });
    for (int64_t i = 0; i < stride; i += kLanes) {
      VF32 values[kKeys];
      Unroll<kKeys>([&](auto j) LARIAT_INLINE_BODY { values[j] = LoadF32(d, k + j * stride + i); });
      Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
        const VF32 query = hn::LoadU(d, q + r * q_stride + i);
        Unroll<kKeys>([&](auto j) LARIAT_INLINE_BODY {
          tile[j * kRows + r] = hn::MulAdd(query, values[j], tile[j * kRows + r]);
        });
      });
    }
    hn::Store(SumsOfLanes<kLanes>(tile), d, scores + key * kRows);
  }
}

// acc[r] = acc[r] * factors[r] + sum_j weights[j][r] values[j] for kRows of the kTile adjacent rows in
// `weights`.
template <int64_t kRows, int64_t kTile, int64_t kVectors, typename T>
HWY_NOINLINE void Values(const float* weights, const float* factors, const T* values, const Span& span,
                         const Ahead ahead, float* acc, int64_t acc_stride) {
  const F32 d;
  VF32 tile[kRows * kVectors];
  Unroll<kRows * kVectors>([&](auto n) LARIAT_INLINE_BODY {
    constexpr int64_t r = n / kVectors, i = n % kVectors;
    tile[n] = hn::Mul(hn::LoadU(d, acc + r * acc_stride + i * kLanes), hn::Set(d, factors[r]));
  });
  for (int64_t key = span.first; key < span.last; ++key) {
    const T* v = values + key * span.stride;
    ahead.fetch<1>(key);
    VF32 weight[kRows];
    Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY { weight[r] = hn::Set(d, weights[key * kTile + r]); });
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

template <int64_t kTile, typename T>
void WeighRows(const float* weights, const float* factors, const T* values, const Span& span, int64_t cols,
               const Ahead& ahead, float* acc, int64_t acc_stride) {
  constexpr int64_t kRows = std::min<int64_t>(kTile, 4);
  const int64_t wide = cols / (kWide * kLanes) * kWide * kLanes;
  const int64_t passes = kTile / kRows * (wide / (kWide * kLanes) + (cols - wide) / kLanes);
  int64_t pass = 0;
  for (int64_t row = 0; row < kTile; row += kRows) {
    float* const out = acc + row * acc_stride;
    for (int64_t at = 0; at < cols; ++pass) {
      const auto add = at < wide ? Values<kRows, kTile, kWide, T> : Values<kRows, kTile, 1, T>;
      add(weights + row, factors + row, values + at, span, ahead.share(pass, passes), out + at, acc_stride);
      at += at < wide ? kWide * kLanes : kLanes;
    }
  }
}

// ahead: during the scores, and during the values.
template <int64_t kRows>
void AttendTile(const AttentionTask& task, const Stored& stored, const Span& span, const Ahead (&ahead)[2],
                int64_t row) {
  HWY_ALIGN float scores[kRows * kAttentionKeys];
  float factors[kRows];
  const int64_t at = row * task.stride;
  WithDType(stored.k, stored.k_dtype, [&](const auto* keys) HWY_ATTR {
    Scores<kRows>(task.q + at, task.stride, keys, span, ahead[0], scores);
  });
  SoftmaxStep<kRows>(task, {row, span.base, span.scored_first(), span.scored_last()}, scores, factors);
  const int64_t cols = std::min(task.value_stride, span.stride);
  WithDType(stored.v, stored.v_dtype, [&](const auto* values) HWY_ATTR {
    WeighRows<kRows>(scores, factors, values, span, cols, ahead[1], task.acc + at, task.stride);
  });
}

// Takes the smallest sufficient tile of up to kMost rows.
template <int64_t kMost>
void AttendRows(const AttentionTask& task, const Stored& stored, const Span& span, const Ahead (&ahead)[2],
                int64_t row) {
  if constexpr (kMost > 1) {
    if (task.rows - row <= kMost / 2) return AttendRows<kMost / 2>(task, stored, span, ahead, row);
  }
  AttendTile<kMost>(task, stored, span, ahead, row);
}

void Attend(const AttentionTask& task, const Stored& stored, const Span& span, const Ahead& ahead) {
  const int64_t tiles = ceil_div(task.rows, kTileRows);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const Ahead parts[] = {ahead.share(2 * tile, 2 * tiles), ahead.share(2 * tile + 1, 2 * tiles)};
    AttendRows<kTileRows>(task, stored, span, parts, tile * kTileRows);
  }
}

void Stream(const AttentionTask& task) {
  const int64_t head_dim = task.layer->head_dim;
  const int64_t begin = std::max(task.first_key, task.begin(0));
  const int64_t end = std::min(task.last_key, task.end(task.rows - 1));
  for (int64_t base = begin / kAttentionKeys * kAttentionKeys; base < end; base += kAttentionKeys) {
    if (!task.has_page(base)) continue;
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
    Ahead ahead;
    if (base + kAttentionKeys < end && task.has_page(base + kAttentionKeys)) {
      const Stored next = StoredAt(task, base + kAttentionKeys);
      ahead = {static_cast<const char*>(next.k), static_cast<const char*>(next.v),
               head_dim * static_cast<int64_t>(size_of(next.k_dtype)),
               head_dim * (next.v_scales != nullptr ? 1 : static_cast<int64_t>(size_of(next.v_dtype)))};
    }
    Attend(task, stored, span, ahead);
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
