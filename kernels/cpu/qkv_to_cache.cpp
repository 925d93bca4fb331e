#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qkv_to_cache.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

void AddBias(float* x, const Matrix& bias, size_t n) {
  const F32 d;
  WithDType(bias.data, bias.dtype, [&](const auto* b) HWY_ATTR {
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      StoreUpTo(hn::Add(LoadUpTo(x + i, n - i), LoadUpTo(b + i, n - i)), x + i, n - i);
    }
  });
}

// Bias over the whole row, then RMSNorm over each head, where the model has them.
void Prepare(float* row, size_t cols, size_t head_dim, const Matrix& bias, const Matrix& norm, float eps) {
  if (bias) AddBias(row, bias, cols);
  if (!norm) return;
  WithDType(norm.data, norm.dtype, [&](const auto* weight) HWY_ATTR {
    for (float* head = row; head < row + cols; head += head_dim) {
      ScaleRow(head, weight, head_dim, NormFactor(SumOfSquares(head, head_dim), head_dim, eps), head);
    }
  });
}

// One token's keys, prepared: rotated and rounded into their places in the cache.
void StoreKeys(const float* row, const float* cos, const float* sin, const RopeTable& rope,
               const KvLayer& cache, int64_t position) {
  const auto head_dim = static_cast<size_t>(cache.head_dim), rotary = static_cast<size_t>(rope.rotary_dim);
  WithDType(cache.k_blocks[position / kKvPage], cache.k_dtype, [&](auto* block) HWY_ATTR {
    for (int64_t head = 0; head < cache.n_kv_heads; ++head, row += head_dim) {
      auto* key = block + kv_index(head, position, 0, cache.head_dim);
      Rotate(row, cos, sin, rotary / 2, rope.interleaved, key);
      StoreRow(row + rotary, head_dim - rotary, key + rotary);
    }
  });
}

void StoreValues(const float* row, const KvLayer& cache, int64_t position) {
  const auto head_dim = static_cast<size_t>(cache.head_dim);
  WithDType(cache.v_blocks[position / kKvPage], cache.v_dtype, [&](auto* block) HWY_ATTR {
    for (int64_t head = 0; head < cache.n_kv_heads; ++head, row += head_dim) {
      StoreRow(row, head_dim, block + kv_index(head, position, 0, cache.head_dim));
    }
  });
}

void QkvTokens(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& post,
               const RopeTable& rope, const KvLayer& cache, int64_t first_position, int64_t first,
               int64_t last) {
  const auto head_dim = static_cast<size_t>(cache.head_dim);
  const auto q_cols = static_cast<size_t>(q.cols), kv_cols = static_cast<size_t>(k.cols);
  for (int64_t i = first; i < last; ++i) {
    Prepare(q.f32(i), q_cols, head_dim, post.q_bias, post.q_norm, post.norm_eps);
    Prepare(k.f32(i), kv_cols, head_dim, post.k_bias, post.k_norm, post.norm_eps);
    StoreKeys(k.f32(i), rope.cos.f32(i), rope.sin.f32(i), rope, cache, first_position + i);
    Prepare(v.f32(i), kv_cols, head_dim, post.v_bias, Matrix(), 0.0F);
    StoreValues(v.f32(i), cache, first_position + i);
  }
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(QkvTokens);

void CpuBackend::qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& post,
                              const RopeTable& rope, const KvLayer& cache, int64_t first_position) {
  for_ranges(threads_, q.rows, row_grain(q.cols + k.cols + v.cols), [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(QkvTokens)(q, k, v, post, rope, cache, first_position, first, last);
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
