// A step of the online softmax and widened copies of the cache, per instruction set: what both attention
// kernels share.
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

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// ALiBi: scores[i] += slope * (first + i). A distance is an integer, and exact in f32 up to 2^24.
HWY_INLINE void AddDistances(float slope, int64_t first, float* scores) {
  const F32 d;
  for (int64_t i = 0; i < kAttentionKeys; i += static_cast<int64_t>(hn::Lanes(d))) {
    const VF32 distances = hn::Iota(d, static_cast<float>(first + i));
    hn::StoreU(hn::MulAdd(hn::Set(d, slope), distances, hn::LoadU(d, scores + i)), d, scores + i);
  }
}

// The scores of `row` for positions [base, base + kAttentionKeys) become exp(score - max[row]), zero where
// the row does not see; max and sum are brought up to date. Returns the factor that what was accumulated
// before is to be multiplied with.
HWY_NOINLINE inline float SoftmaxStep(const AttentionTask& task, int64_t row, int64_t base, float* scores) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const F32 d;
  const auto first = std::clamp<int64_t>(task.begin(row) - base, 0, kAttentionKeys);
  const auto last = std::clamp<int64_t>(std::min(task.end(row), task.last_key) - base, first, kAttentionKeys);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; task.softcap > 0.0F && i < kAttentionKeys; i += lanes) {
    hn::StoreU(SoftCap(hn::LoadU(d, scores + i), task.softcap), d, scores + i);
  }
  if (task.slopes != nullptr) {
    AddDistances(task.slopes[row % task.group], base - task.position(row), scores);
  }
  std::fill(scores, scores + first, -kInf);
  std::fill(scores + last, scores + kAttentionKeys, -kInf);

  VF32 largest = hn::LoadU(d, scores);
  for (int64_t i = lanes; i < kAttentionKeys; i += lanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + i));
  }
  const float max = std::max(task.max[row], hn::GetLane(hn::MaxOfLanes(d, largest)));
  if (max == -kInf) {  // nothing seen so far: exp(-inf - -inf) would be NaN
    std::fill(scores, scores + kAttentionKeys, 0.0F);
    return 1.0F;
  }
  VF32 sum = hn::Zero(d);
  for (int64_t i = 0; i < kAttentionKeys; i += lanes) {
    const VF32 weight = Exp(hn::Sub(hn::LoadU(d, scores + i), hn::Set(d, max)));
    hn::StoreU(weight, d, scores + i);
    sum = hn::Add(sum, weight);
  }
  const float factor = max == task.max[row] ? 1.0F : std::exp(task.max[row] - max);
  task.sum[row] = task.sum[row] * factor + hn::GetLane(hn::SumOfLanes(d, sum));
  task.max[row] = max;
  return factor;
}

// One head's keys and values from some position on, in any dtype.
struct Stored {
  void* k;
  void* v;
  DType k_dtype, v_dtype;
  const float* v_scales;  // of kQ8 values, else null
};

// Position `base` of the task's head in its page.
HWY_INLINE Stored StoredAt(const AttentionTask& task, int64_t base) {
  const KvLayer& layer = *task.layer;
  void* const page = task.pages[base / kKvPage];
  const int64_t at = kv_index(task.kv_head, base, 0, layer.head_dim);
  const bool q8 = layer.v_dtype == DType::kQ8;
  const int64_t v_size = q8 ? 1 : static_cast<int64_t>(size_of(layer.v_dtype));
  return {static_cast<char*>(layer.keys(page)) + at * static_cast<int64_t>(size_of(layer.k_dtype)),
          static_cast<char*>(layer.values(page)) + at * v_size, layer.k_dtype, layer.v_dtype,
          q8 ? layer.value_scale(page, task.kv_head, base) : nullptr};
}

// Positions [first, last) of src ([kAttentionKeys][head_dim]) as f32, each padded with zeros to `stride`.
HWY_NOINLINE inline void Widen(void* src, DType dtype, int64_t first, int64_t last, int64_t head_dim,
                               int64_t stride, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  WithDType(src, dtype, [&](const auto* positions) HWY_ATTR {
    for (int64_t key = first; key < last; ++key) {
      for (int64_t i = 0; i < stride; i += lanes) {
        const int64_t count = std::clamp<int64_t>(head_dim - i, 0, lanes);
        const auto* p = positions + key * head_dim + std::min(i, head_dim);
        hn::StoreU(count == lanes ? LoadF32(d, p) : LoadTailF32(d, p, static_cast<size_t>(count)), d,
                   out + key * stride + i);
      }
    }
  });
}

// The same for values, which have scales if they are kQ8.
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

#endif  // per-target include guard
