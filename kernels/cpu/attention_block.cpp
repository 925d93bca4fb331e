#include <algorithm>

#include "kernels/cpu/attention_task.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_block.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// kRows x kWide vectors and their operands fill the registers.
constexpr int64_t kRows = kAttentionBlockTile;
constexpr int64_t kWide = kLanes >= 16 ? 4 : 2;

// c[r][i] = c[r][i] * factors[r] + sum_k a[r][k] b[k][i]; c starts at zero without factors.
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

// Multiplies `cols` columns of b, a multiple of kLanes.
void MultiplyColumns(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth,
                     const float* factors, float* c, int64_t c_stride, int64_t cols) {
  int64_t i = 0;
  for (; i + kWide * kLanes <= cols; i += kWide * kLanes) {
    Multiply<kWide>(a, a_stride, b + i, b_stride, depth, factors, c + i, c_stride);
  }
  for (; i < cols; i += kLanes) Multiply<1>(a, a_stride, b + i, b_stride, depth, factors, c + i, c_stride);
}

// out[i][key] = src[key][i] as f32, in whole vectors of positions around [first, last).
template <typename T>
HWY_NOINLINE void WidenTransposed(const T* src, int64_t first, int64_t last, int64_t head_dim, float* out) {
  const F32 d;
  for (int64_t key = first / kLanes * kLanes; key < last; key += kLanes) {
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

// Widened kAttentionKeys positions: keys [stride][kAttentionKeys], values [kAttentionKeys][stride].
struct WideBlock {
  const float* keys;
  const float* values;
  int64_t base;
  int64_t first, last;  // visible to some row, relative to base
};

// Hidden positions have no weight: a row's bits do not depend on other rows. Rows from `end` on stay
// unchanged.
HWY_NOINLINE void AttendTile(const AttentionTask& task, const WideBlock& block, int64_t row, int64_t end) {
  const int64_t first = std::max(block.first, task.begin(row) - block.base);
  const int64_t last = std::min(block.last, task.end(std::min(row + kRows, end) - 1) - block.base);
  if (first >= last) return;
  const int64_t scored = first / kLanes * kLanes, scored_end = round_up(last, kLanes);
  HWY_ALIGN float scores[kRows * kAttentionKeys];
  MultiplyColumns(task.q + row * task.stride, task.stride, block.keys + scored, kAttentionKeys,
                  task.layer->head_dim, nullptr, scores + scored, kAttentionKeys, scored_end - scored);
  float factors[kRows];
  for (int64_t r = 0; r < kRows; ++r) {
    float* row_scores = scores + r * kAttentionKeys;
    if (row + r < end) {
      SoftmaxStep<1>(task, {row + r, block.base, scored, scored_end}, row_scores, factors + r);
    } else {
      std::fill(row_scores + scored, row_scores + scored_end, 0.0F);
      factors[r] = 1.0F;
    }
  }
  MultiplyColumns(scores + first, kAttentionKeys, block.values + first * task.stride, task.stride,
                  last - first, factors, task.acc + row * task.stride, task.stride, task.value_stride);
}

void Block(const AttentionTask& task) {
  const int64_t head_dim = task.layer->head_dim;
  float* keys = task.scratch;
  float* values = task.scratch + kAttentionKeys * task.stride;
  const int64_t begin = std::max(task.first_key, task.begin(0));
  const int64_t end = std::min(task.last_key, task.end(task.rows - 1));
  int64_t first_row = 0, last_row = 0;
  for (int64_t base = begin / kAttentionKeys * kAttentionKeys; base < end; base += kAttentionKeys) {
    if (!task.has_page(base)) continue;
    const WideBlock block{keys, values, base, std::max(begin - base, int64_t{0}),
                          std::min(end - base, kAttentionKeys)};
    const Stored stored = StoredAt(task, base);
    WithDType(stored.k, stored.k_dtype,
              [&](const auto* k) HWY_ATTR { WidenTransposed(k, block.first, block.last, head_dim, keys); });
    WidenValues(stored, block.first, block.last, head_dim, task.stride, values);
    // Earlier tokens do not see this block; later tokens' windows may start after it.
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
