#include <algorithm>

#include "kernels/cpu/attention_task.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_block.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// A tile of kRows x kWide vectors and its operands fill the registers: 32 of them with AVX-512, else 16.
constexpr int64_t kRows = kAttentionBlockTile;
constexpr int64_t kWide = kLanes >= 16 ? 4 : 2;

// c[r][i] = c[r][i] * factors[r] + sum_k a[r][k] b[k][i] over kVectors vectors of i; c starts at zero where
// there are no factors. This loop is where a prefill spends its time, both for Q K^T and for P V.
template <int64_t kVectors>
HWY_NOINLINE void Multiply(const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT b,
                           int64_t b_stride, int64_t depth, const float* factors, float* HWY_RESTRICT c,
                           int64_t c_stride) {
  const F32 d;
  VF32 tile[kRows * kVectors];
  Unroll<kRows * kVectors>([&](auto n) LARIAT_INLINE_BODY {
    constexpr int64_t r = n / kVectors, i = n % kVectors;
    tile[n] = factors == nullptr
                  ? hn::Zero(d)
                  : hn::Mul(hn::LoadU(d, c + r * c_stride + i * kLanes), hn::Set(d, factors[r]));
  });
  for (int64_t k = 0; k < depth; ++k, b += b_stride) {
    VF32 row[kVectors];
    Unroll<kVectors>([&](auto i) LARIAT_INLINE_BODY { row[i] = hn::LoadU(d, b + i * kLanes); });
    Unroll<kRows>([&](auto r) LARIAT_INLINE_BODY {
      const VF32 value = hn::Set(d, a[r * a_stride + k]);
      Unroll<kVectors>([&](auto i) LARIAT_INLINE_BODY {
        tile[r * kVectors + i] = hn::MulAdd(value, row[i], tile[r * kVectors + i]);
      });
    });
  }
  Unroll<kRows * kVectors>([&](auto n) LARIAT_INLINE_BODY {
    constexpr int64_t r = n / kVectors, i = n % kVectors;
    hn::StoreU(tile[n], d, c + r * c_stride + i * kLanes);
  });
}

// out[i][key] = src[key][i] as f32, for all kAttentionKeys positions (src: [kAttentionKeys][head_dim]) and
// head_dim rounded up to whole vectors. Positions that are not in the cache yet give columns nobody uses.
template <typename T>
HWY_NOINLINE void WidenTransposed(const T* src, int64_t head_dim, float* out) {
  const F32 d;
  for (int64_t key = 0; key < kAttentionKeys; key += kLanes) {
    for (int64_t i = 0; i < head_dim; i += kLanes) {
      VF32 tile[kLanes];
      const int64_t count = std::min(head_dim - i, kLanes);
      const T* p = src + key * head_dim + i;
      if (count == kLanes) {
        Unroll<kLanes>([&](auto j) LARIAT_INLINE_BODY { tile[j] = LoadF32(d, p + j * head_dim); });
      } else {
        const auto tail = static_cast<size_t>(count);
        Unroll<kLanes>([&](auto j) LARIAT_INLINE_BODY { tile[j] = LoadTailF32(d, p + j * head_dim, tail); });
      }
      Transpose(tile);
      Unroll<kLanes>(
          [&](auto j) LARIAT_INLINE_BODY { hn::StoreU(tile[j], d, out + (i + j) * kAttentionKeys + key); });
    }
  }
}

// kAttentionKeys positions, widened: keys [stride][kAttentionKeys], values [kAttentionKeys][stride].
struct WideBlock {
  const float* keys;
  const float* values;
  int64_t base;         // the first position
  int64_t first, last;  // relative to base: what some row sees
};

// kRows rows from `row` on over one block; rows from `end` on are left as they are.
HWY_NOINLINE void AttendTile(const AttentionTask& task, const WideBlock& block, int64_t row, int64_t end) {
  HWY_ALIGN float scores[kRows * kAttentionKeys];
  const float* q = task.q + row * task.stride;
  for (int64_t key = 0; key < block.last; key += kWide * kLanes) {
    Multiply<kWide>(q, task.stride, block.keys + key, kAttentionKeys, task.layer->head_dim, nullptr,
                    scores + key, kAttentionKeys);
  }
  float factors[kRows];
  for (int64_t r = 0; r < kRows; ++r) {
    float* row_scores = scores + r * kAttentionKeys;
    if (row + r < end) {
      SoftmaxStep<1>(task, {row + r, block.base, block.first / kLanes * kLanes, round_up(block.last, kLanes)},
                     row_scores, factors + r);
    } else {
      std::fill(row_scores, row_scores + kAttentionKeys, 0.0F);
      factors[r] = 1.0F;
    }
  }
  const float* weights = scores + block.first;
  const float* values = block.values + block.first * task.stride;
  float* acc = task.acc + row * task.stride;
  const int64_t depth = block.last - block.first;
  int64_t i = 0;
  for (; i + kWide * kLanes <= task.value_stride; i += kWide * kLanes) {
    Multiply<kWide>(weights, kAttentionKeys, values + i, task.stride, depth, factors, acc + i, task.stride);
  }
  for (; i < task.value_stride; i += kLanes) {
    Multiply<1>(weights, kAttentionKeys, values + i, task.stride, depth, factors, acc + i, task.stride);
  }
}

void Block(const AttentionTask& task) {
  const int64_t head_dim = task.layer->head_dim;
  float* keys = task.scratch;
  float* values = task.scratch + kAttentionKeys * task.stride;
  const int64_t begin = std::max(task.first_key, task.begin(0));
  const int64_t end = std::min(task.last_key, task.end(task.rows - 1));
  int64_t first_row = 0, last_row = 0;
  for (int64_t base = begin / kAttentionKeys * kAttentionKeys; base < end; base += kAttentionKeys) {
    const WideBlock block{keys, values, base, std::max(begin - base, int64_t{0}),
                          std::min(end - base, kAttentionKeys)};
    const Stored stored = StoredAt(task, base);
    WithDType(stored.k, stored.k_dtype, [&](const auto* k) HWY_ATTR { WidenTransposed(k, head_dim, keys); });
    WidenValues(stored, block.first, block.last, head_dim, task.stride, values);
    // Earlier tokens do not see this block yet, later ones may have left it behind.
    while (first_row < task.rows && task.end(first_row) <= base) first_row += task.group;
    while (last_row < task.rows && task.begin(last_row) < base + kAttentionKeys) last_row += task.group;
    for (int64_t row = first_row; row < last_row; row += kRows) AttendTile(task, block, row, last_row);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(Block);

void attention_block(const AttentionTask& task) { HWY_DYNAMIC_DISPATCH(Block)(task); }

}  // namespace lariat
#endif  // HWY_ONCE
