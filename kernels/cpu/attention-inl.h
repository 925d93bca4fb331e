#if defined(LARIAT_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_KERNELS_CPU_ATTENTION_INL_H_
#undef LARIAT_KERNELS_CPU_ATTENTION_INL_H_
#else
#define LARIAT_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kv_values.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

constexpr int64_t kLanes = hn::MaxLanes(F32());
template <int64_t kRows>
constexpr int64_t kPositions = kLanes / kRows;  // per vector of kRows rows

// Vectors of kRows rows side by side: lane j * kRows + r is row r at position j.

// value(r, j) in every lane.
template <int64_t kRows, class Value>
HWY_INLINE VF32 RowLanes(const Value& value) {
  HWY_ALIGN float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = value(i % kRows, i / kRows);
  return hn::Load(F32(), lanes);
}

// value(r) in every lane of row r; called once per row.
template <int64_t kRows, class Value>
HWY_INLINE VF32 OfRows(const Value& value) {
  if constexpr (kRows == 1) return hn::Set(F32(), value(0));
  float rows[kRows];
  for (int64_t r = 0; r < kRows; ++r) rows[r] = value(r);
  return RowLanes<kRows>([&](int64_t r, int64_t /*j*/) { return rows[r]; });
}

// Position of every lane of the first vector.
template <int64_t kRows>
HWY_INLINE VF32 LanePositions() {
  return RowLanes<kRows>([](int64_t /*r*/, int64_t j) { return static_cast<float>(j); });
}

// Lane i of the result is lane i ^ kDistance.
template <int64_t kDistance>
HWY_INLINE VF32 SwapLanes(VF32 x) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kDistance == 1) {
    return hn::Shuffle2301(x);
  } else if constexpr (kDistance == 2) {
    return hn::Shuffle1032(x);
  } else if constexpr (kDistance == kLanes / 2) {
    return hn::ConcatLowerUpper(F32(), x, x);
  } else {
    return hn::SwapAdjacentBlocks(x);
  }
#else
  return x;
#endif
}

// Reduces all positions of a row by op; every lane gets its row's result.
template <int64_t kRows, int64_t kDistance = kLanes / 2, class Op>
HWY_INLINE VF32 FoldPositions(VF32 x, const Op& op) {
  if constexpr (kDistance >= kRows) {
    return FoldPositions<kRows, kDistance / 2>(op(x, SwapLanes<kDistance>(x)), op);
  } else {
    return x;
  }
}

// Scores of adjacent rows, [kAttentionKeys][kRows]: positions [first, last) from `base`, multiples of kLanes.
struct Scored {
  int64_t row;   // rows after the task's last are ignored
  int64_t base;  // a multiple of kAttentionKeys
  int64_t first, last;
};

// ALiBi: adds slope * (key position - row position).
template <int64_t kRows>
HWY_NOINLINE void AddDistances(const AttentionTask& task, const Scored& at, float* scores) {
  const F32 d;
  const VF32 slopes = OfRows<kRows>([&](int64_t r) { return task.slopes[(at.row + r) % task.group]; });
  const VF32 first = OfRows<kRows>(
      [&](int64_t r) { return static_cast<float>(at.base + at.first - task.position(at.row + r)); });
  VF32 distances = hn::Add(first, LanePositions<kRows>());
  for (int64_t i = at.first * kRows; i < at.last * kRows; i += kLanes) {
    hn::StoreU(hn::MulAdd(slopes, distances, hn::LoadU(d, scores + i)), d, scores + i);
    distances = hn::Add(distances, hn::Set(d, float{kPositions<kRows>}));
  }
}

// Sets hidden scores to -inf.
template <int64_t kRows>
HWY_INLINE void HideUnseen(const AttentionTask& task, const Scored& at, float* scores) {
  const F32 d;
  const auto first = [&](int64_t row) { return task.begin(row) - at.base; };
  const auto last = [&](int64_t row) { return std::min(task.end(row), task.last_key) - at.base; };
  const int64_t most = task.rows - 1, end = std::min(at.row + kRows - 1, most);
  if (first(end) <= at.first && last(at.row) >= at.last) return;
  const auto bound = [&](int64_t position) {
    return static_cast<float>(std::clamp<int64_t>(position, 0, kAttentionKeys));
  };
  const VF32 firsts = OfRows<kRows>([&](int64_t r) { return bound(first(std::min(at.row + r, most))); });
  const VF32 lasts = OfRows<kRows>([&](int64_t r) { return bound(last(std::min(at.row + r, most))); });
  VF32 position = hn::Add(LanePositions<kRows>(), hn::Set(d, static_cast<float>(at.first)));
  for (int64_t i = at.first * kRows; i < at.last * kRows; i += kLanes) {
    const auto seen = hn::And(hn::Ge(position, firsts), hn::Lt(position, lasts));
    const VF32 hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
    hn::StoreU(hn::IfThenElse(seen, hn::LoadU(d, scores + i), hidden), d, scores + i);
    position = hn::Add(position, hn::Set(d, float{kPositions<kRows>}));
  }
}

template <int64_t kCount, class Op>
HWY_INLINE VF32 FoldTerms(VF32* terms, const Op& op) {
  if constexpr (kCount > 1) {
    Unroll<kCount / 2>([&](auto i) LARIAT_INLINE_BODY { terms[i] = op(terms[i], terms[i + kCount / 2]); });
    return FoldTerms<kCount / 2>(terms, op);
  }
  return terms[0];
}

// Converts scores to exp(score - max[row]), 0 if hidden, and updates max and sum. factors[r] rescales earlier
// accumulators. Weights are summed by position modulo kLanes: a row's sum is bitwise identical for any number
// of rows.
template <int64_t kRows>
HWY_NOINLINE void SoftmaxStep(const AttentionTask& task, const Scored& at, float* scores, float* factors) {
  const F32 d;
  const int64_t begin = at.first * kRows, end = at.last * kRows;
  for (int64_t i = begin; task.softcap > 0.0F && i < end; i += kLanes) {
    hn::StoreU(SoftCap(hn::LoadU(d, scores + i), task.softcap), d, scores + i);
  }
  if (task.slopes != nullptr) AddDistances<kRows>(task, at, scores);
  HideUnseen<kRows>(task, at, scores);

  float* const maxima = task.max + at.row;
  float* const totals = task.sum + at.row;
  const VF32 before = OfRows<kRows>([&](int64_t r) { return maxima[r]; });
  VF32 terms[kRows];
  const auto larger = [](VF32 a, VF32 b) LARIAT_INLINE_BODY { return hn::Max(a, b); };
  Unroll<kRows>([&](auto u) LARIAT_INLINE_BODY { terms[u] = before; });
  for (int64_t i = begin; i < end; i += kRows * kLanes) {
    Unroll<kRows>([&](auto u) LARIAT_INLINE_BODY {
      terms[u] = hn::Max(terms[u], hn::LoadU(d, scores + i + u * kLanes));
    });
  }
  const VF32 max = FoldPositions<kRows>(FoldTerms<kRows>(terms, larger), larger);
  // Without a visible key, exp(-inf - -inf) would be NaN.
  const VF32 nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  const VF32 origin = hn::IfThenZeroElse(hn::Eq(max, nothing), max);
  const auto plus = [](VF32 a, VF32 b) LARIAT_INLINE_BODY { return hn::Add(a, b); };
  Unroll<kRows>([&](auto u) LARIAT_INLINE_BODY { terms[u] = hn::Zero(d); });
  for (int64_t i = begin; i < end; i += kRows * kLanes) {
    Unroll<kRows>([&](auto u) LARIAT_INLINE_BODY {
      const VF32 weight = Exp(hn::Sub(hn::LoadU(d, scores + i + u * kLanes), origin));
      hn::StoreU(weight, d, scores + i + u * kLanes);
      terms[u] = hn::Add(terms[u], weight);
    });
  }
  const VF32 sum = FoldPositions<kRows>(FoldTerms<kRows>(terms, plus), plus);
  const VF32 factor = Exp(hn::Sub(before, origin));
  const VF32 total = OfRows<kRows>([&](int64_t r) { return totals[r]; });
  const auto store = [](VF32 x, float* out) LARIAT_INLINE_BODY {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(x, F32(), lanes);
    std::copy_n(lanes, kRows, out);
  };
  store(max, maxima);
  store(hn::MulAdd(total, factor, sum), totals);
  store(factor, factors);
}

struct Stored {
  void* k;
  void* v;
  DType k_dtype, v_dtype;
  const float* v_scales;  // of kQ8 values, else null
};

HWY_INLINE Stored StoredAt(const AttentionTask& task, int64_t base) {
  const KvLayer& layer = *task.layer;
  void* const page = task.pages[base / kKvPage];
  const int64_t at = kv_index(task.kv_head, base, 0, layer.head_dim);
  const bool q8 = layer.v_dtype == DType::kQ8;
  const int64_t v_size = q8 ? 1 : static_cast<int64_t>(size_of(layer.v_dtype));
  return {static_cast<char*>(layer.keys(page)) + at * static_cast<int64_t>(size_of(layer.k_dtype)),
          static_cast<char*>(layer.values(page)) + at * v_size, layer.k_dtype, layer.v_dtype,
          q8 ? &scale_of_value(layer, layer.values(page), task.kv_head, base) : nullptr};
}

// Widens positions [first, last) to f32, zero-padded to `stride`.
HWY_NOINLINE inline void Widen(void* src, DType dtype, int64_t first, int64_t last, int64_t head_dim,
                               int64_t stride, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  WithDType(src, dtype, [&](const auto* positions) HWY_ATTR {
    for (int64_t key = first; key < last; ++key) {
      for (int64_t i = 0; i < stride; i += lanes) {
        const int64_t count = std::clamp<int64_t>(head_dim - i, 0, lanes);
        const auto* p = positions + key * head_dim + std::min(i, head_dim);
        hn::StoreU(LoadUpTo(p, static_cast<size_t>(count)), d, out + key * stride + i);
      }
    }
  });
}

HWY_NOINLINE inline void WidenValues(const Stored& stored, int64_t first, int64_t last, int64_t head_dim,
                                     int64_t stride, float* out) {
  if (stored.v_scales == nullptr) {
    return Widen(stored.v, stored.v_dtype, first, last, head_dim, stride, out);
  }
  const F32 d;
  const hn::Rebind<int8_t, F32> d8;
  const hn::RebindToSigned<F32> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t key = first; key < last; ++key) {
    const auto* integers = static_cast<const int8_t*>(stored.v) + key * head_dim;
    const float scale = stored.v_scales[key];
    float* const value = out + key * stride;
    int64_t i = 0;
    for (; i + lanes <= head_dim; i += lanes) {
      const VF32 x = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, integers + i)));
      hn::StoreU(hn::Mul(x, hn::Set(d, scale)), d, value + i);
    }
    for (; i < head_dim; ++i) value[i] = scale * static_cast<float>(integers[i]);
    std::fill(value + head_dim, value + stride, 0.0F);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
