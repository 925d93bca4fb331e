#include "kernels/cpu/cpu_backend.h"
#include "kernels/kv_values.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qkv_to_cache.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Keeps a NaN: x86 Min and Max return the second operand for a NaN.
void Clip(float* x, float clip, size_t n) {
  const F32 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const VF32 below = hn::Max(hn::Set(d, -clip), LoadUpTo(x + i, n - i));
    StoreUpTo(hn::Min(hn::Set(d, clip), below), x + i, n - i);
  }
}

void Prepare(float* row, size_t cols, size_t head_dim, const Matrix& bias, const Matrix& norm,
             const QkvEpilogue& epilogue) {
  if (bias) AddBias(row, bias, cols);
  if (epilogue.clip > 0.0F) Clip(row, epilogue.clip, cols);
  if (!norm) return;
  WithDType(norm.data, norm.dtype, [&](const auto* weight) HWY_ATTR {
    for (float* head = row; head < row + cols; head += head_dim) {
      ScaleRow(head, weight, head_dim, NormFactor(SumOfSquares(head, head_dim), head_dim, epilogue.norm_eps),
               head);
    }
  });
}

// Stores one token's keys or values, the first 2 * pairs numbers of each head rotated. Returns the count of
// +-65504.
int64_t StoreHeads(const float* row, const float* cos, const float* sin, size_t pairs, bool interleaved,
                   const KvLayer& layer, void* cache, DType dtype, int64_t position) {
  const auto head_dim = static_cast<size_t>(layer.head_dim), rotary = 2 * pairs;
  int64_t saturated = 0;
  WithDType(cache, dtype, [&]<typename T>(T* heads) HWY_ATTR {
    CacheStore<T> store;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head, row += head_dim) {
      T* to = heads + kv_index(head, position, 0, layer.head_dim);
      Rotate(row, cos, sin, pairs, interleaved, to, store);
      StoreRow(row + rotary, head_dim - rotary, to + rotary, store);
    }
    if (!store.saturated()) return;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head)
      saturated += CountSaturated(heads + kv_index(head, position, 0, layer.head_dim), head_dim);
  });
  return saturated;
}

int64_t StoreValues(const float* row, const KvLayer& layer, void* page, int64_t position) {
  if (layer.v_dtype == DType::kQ8) {
    for (int64_t head = 0; head < layer.n_kv_heads; ++head, row += layer.head_dim) {
      store_quantized_value(layer, layer.values(page), head, position, row);
    }
    return 0;
  }
  return StoreHeads(row, nullptr, nullptr, 0, false, layer, layer.values(page), layer.v_dtype, position);
}

Saturation QkvToken(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& epilogue,
                    const RopeTable& rope, const KvLayer& layer, void* const* pages, int64_t row,
                    int64_t position) {
  const auto head_dim = static_cast<size_t>(layer.head_dim);
  const auto q_cols = static_cast<size_t>(q.cols), kv_cols = static_cast<size_t>(k.cols);
  void* const page = pages[position / kKvPage];
  if (q) Prepare(q.f32(row), q_cols, head_dim, epilogue.q_bias, epilogue.q_norm, epilogue);
  Saturation saturated;
  if (page == nullptr) return saturated;
  Prepare(k.f32(row), kv_cols, head_dim, epilogue.k_bias, epilogue.k_norm, epilogue);
  saturated.keys =
      StoreHeads(k.f32(row), rope.cos.f32(row), rope.sin.f32(row), static_cast<size_t>(rope.rotary_dim / 2),
                 rope.interleaved, layer, layer.keys(page), layer.k_dtype, position);
  if (const RopeTable* second = epilogue.second_rope) {
    saturated.keys += StoreHeads(k.f32(row), second->cos.f32(row), second->sin.f32(row),
                                 static_cast<size_t>(second->rotary_dim / 2), second->interleaved, layer,
                                 layer.with_second_keys().keys(page), layer.k_dtype, position);
  }
  if (!v) return saturated;
  Prepare(v.f32(row), kv_cols, head_dim, epilogue.v_bias, Matrix(), epilogue);
  saturated.values = StoreValues(v.f32(row), layer, page, position);
  return saturated;
}

// Copies numbers [first, first + out.cols) of a key to rows [row, row + copies) of out.
void LoadKey(const KvLayer& layer, void* page, int64_t position, int64_t first, const Matrix& out,
             int64_t row, int64_t copies) {
  WithDType(layer.keys(page), layer.k_dtype, [&](const auto* keys) HWY_ATTR {
    const auto* key = keys + kv_index(0, position, first, layer.head_dim);
    ForVectors(static_cast<size_t>(out.cols), [&](size_t i, size_t count) LARIAT_INLINE_BODY {
      const VF32 values = LoadUpTo(key + i, count);
      for (int64_t copy = 0; copy < copies; ++copy) StoreUpTo(values, out.f32(row + copy) + i, count);
    });
  });
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(QkvToken);
HWY_EXPORT(LoadKey);

void CpuBackend::qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                              const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) {
  for_ranges(threads_, k.rows, row_grain(q.cols + k.cols + v.cols), [&](int64_t first, int64_t last) {
    Saturation saturated;
    for_sequences(step.sequences, first, last, [&](size_t s, int64_t row, int64_t position, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const Saturation of_token = HWY_DYNAMIC_DISPATCH(QkvToken)(
            q, k, v, epilogue, rope, layer, step.sequences[s].pages, row + i, position + i);
        saturated.keys += of_token.keys;
        saturated.values += of_token.values;
      }
    });
    if (saturated.keys != 0) saturated_keys_ += saturated.keys;
    if (saturated.values != 0) saturated_values_ += saturated.values;
  });
}

void CpuBackend::keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) {
  int64_t tokens = 0;
  for (const StepSequence& sequence : step.sequences) tokens += sequence.n_tokens;
  if (tokens == 0) return;
  const int64_t copies = out.rows / tokens;
  for_ranges(threads_, tokens, row_grain(copies * out.cols), [&](int64_t begin, int64_t end) {
    for_sequences(step.sequences, begin, end, [&](size_t s, int64_t row, int64_t position, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        HWY_DYNAMIC_DISPATCH(LoadKey)
        (layer, step.sequences[s].pages[(position + i) / kKvPage], position + i, first, out,
         (row + i) * copies, copies);
      }
    });
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
