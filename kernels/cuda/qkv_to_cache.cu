#include <cfloat>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

struct HeadRows {
  float* x;
  int64_t stride;
  int heads;
  const void* bias;  // or null
  DType bias_dtype;
  const void* norm;  // or null
  DType norm_dtype;
};

struct KeyPlace {
  const float *cos, *sin;
  int64_t cos_stride, sin_stride, offset;
};

struct QkvArgs {
  HeadRows q, k, v;  // q.heads is 0 if q stays unchanged
  float norm_eps, clip;
  KeyPlace keys, second_keys;  // second_keys.cos is null without second keys
  int rotary_dim;
  bool interleaved;
  DeviceStep step;
  int64_t v_offset;  // in a page
  DType k_dtype, v_dtype;
  int head_dim;
  int64_t n_rows;
  unsigned long long* saturated;  // keys, values
};

constexpr int kWarps = 4;

// row = norm(clip(x + bias)), by one warp.
__device__ void prepare(const QkvArgs& a, const HeadRows& s, const float* x, int head, float* row) {
  const int head_dim = a.head_dim;
  const int lane = lane_index();
  float sum = 0.0F;
  for (int d = lane; d < head_dim; d += kWarpSize) {
    float value = x[d];
    if (s.bias != nullptr) value += load_any(s.bias, s.bias_dtype, int64_t{head} * head_dim + d);
    if (a.clip > 0.0F) value = value > a.clip ? a.clip : value < -a.clip ? -a.clip : value;
    row[d] = value;
    sum += value * value;
  }
  if (s.norm == nullptr) return;
  const float scale = 1.0F / sqrtf(warp_sum(sum) / static_cast<float>(head_dim) + a.norm_eps);
  for (int d = lane; d < head_dim; d += kWarpSize) row[d] *= scale * load_any(s.norm, s.norm_dtype, d);
}

// Stores `x`, rotated, in the cache's keys at the step's row `row`.
__device__ void store_key(const QkvArgs& a, const KeyPlace& to, const float* x, int head, int64_t row) {
  const int lane = lane_index();
  const StepRow at = a.step.row(row);
  void* keys = in_page(a.step.page(at), to.offset);
  const int64_t base = kv_index(head, at.position, 0, a.head_dim);
  const int half = a.rotary_dim / 2;
  int saturated = 0;
  for (int pair = lane; pair < half; pair += kWarpSize) {
    const int first = a.interleaved ? 2 * pair : pair;
    const int second = a.interleaved ? 2 * pair + 1 : pair + half;
    const float c = to.cos[row * to.cos_stride + pair], s = to.sin[row * to.sin_stride + pair];
    store_to_cache(keys, a.k_dtype, base + first, x[first] * c - x[second] * s, saturated);
    store_to_cache(keys, a.k_dtype, base + second, x[first] * s + x[second] * c, saturated);
  }
  for (int d = a.rotary_dim + lane; d < a.head_dim; d += kWarpSize) {
    store_to_cache(keys, a.k_dtype, base + d, x[d], saturated);
  }
  count_saturated(saturated, a.saturated);
}

// quantize_value (kernels/kv_values.h) by a warp: writes `out`, returns the scale.
__device__ float quantize_by_warp(const float* x, int head_dim, int8_t* out) {
  float largest = 0.0F, not_numbers = 0.0F;
  for (int d = lane_index(); d < head_dim; d += kWarpSize) {
    largest = fmaxf(largest, fabsf(x[d]));
    if (x[d] != x[d]) not_numbers = 1.0F;
  }
  largest = fminf(warp_max(largest), FLT_MAX);
  const bool numbers = warp_max(not_numbers) == 0.0F;
  if (largest < 1e-36F) largest = 0.0F;
  const float inverse = numbers && largest > 0.0F ? 127.0F / largest : 0.0F;
  for (int d = lane_index(); d < head_dim; d += kWarpSize) {
    const float value = numbers ? fminf(fmaxf(x[d], -FLT_MAX), FLT_MAX) * inverse : 0.0F;
    out[d] = static_cast<int8_t>(rintf(value));
  }
  return numbers ? largest / 127.0F : NAN;
}

__device__ void store_value(const QkvArgs& a, const float* x, int head, int64_t row) {
  const StepRow at = a.step.row(row);
  void* page = a.step.page(at);
  void* values = in_page(page, a.v_offset);
  const int64_t base = kv_index(head, at.position, 0, a.head_dim);
  if (a.v_dtype == DType::kQ8) {
    const float scale = quantize_by_warp(x, a.head_dim, static_cast<int8_t*>(values) + base);
    const int64_t offset = a.v_offset + kv_scale_offset(a.v.heads, a.head_dim, head, at.position);
    if (lane_index() == 0) *in_page<float>(page, offset) = scale;
    return;
  }
  int saturated = 0;
  for (int d = lane_index(); d < a.head_dim; d += kWarpSize) {
    store_to_cache(values, a.v_dtype, base + d, x[d], saturated);
  }
  count_saturated(saturated, a.saturated + 1);
}

// Grid: one warp per row and head of q, k and v (q only if it changes). Bound by memory, and by latency for a
// single token.
__global__ void qkv_to_cache_kernel(const __grid_constant__ QkvArgs a) {
  LARIAT_DYNAMIC_SHARED(raw);
  start_in_turn();
  const int warp = warp_index(), lane = lane_index();
  float* prepared = reinterpret_cast<float*>(raw) + warp * a.head_dim;
  const int heads = a.q.heads + a.k.heads + a.v.heads;
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t row = index / heads;
  int head = static_cast<int>(index % heads);
  if (row >= a.n_rows) return;

  if (head < a.q.heads) {
    float* x = a.q.x + row * a.q.stride + int64_t{head} * a.head_dim;
    prepare(a, a.q, x, head, prepared);
    for (int d = lane; d < a.head_dim; d += kWarpSize) x[d] = prepared[d];
    return;
  }
  head -= a.q.heads;
  if (head < a.k.heads) {
    const float* x = a.k.x + row * a.k.stride + int64_t{head} * a.head_dim;
    prepare(a, a.k, x, head, prepared);
    __syncwarp();  // another lane wrote a pair's other half
    store_key(a, a.keys, prepared, head, row);
    if (a.second_keys.cos != nullptr) store_key(a, a.second_keys, prepared, head, row);
    return;
  }
  head -= a.k.heads;
  const float* x = a.v.x + row * a.v.stride + int64_t{head} * a.head_dim;
  prepare(a, a.v, x, head, prepared);
  store_value(a, prepared, head, row);
}

struct KeyArgs {
  DeviceStep step;
  int64_t k_offset, out_stride, n_rows;
  float* out;
  DType k_dtype;
  int head_dim, first, cols, copies;
};

// Grid: one warp per token.
__global__ void keys_from_cache_kernel(const __grid_constant__ KeyArgs a) {
  start_in_turn();
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp_index();
  if (row >= a.n_rows) return;
  const StepRow at = a.step.row(row);
  const void* keys = in_page(a.step.page(at), a.k_offset);
  const int64_t base = kv_index(0, at.position, a.first, a.head_dim);
  for (int d = lane_index(); d < a.cols; d += kWarpSize) {
    const float value = load_any(keys, a.k_dtype, base + d);
    for (int64_t to = row * a.copies; to < (row + 1) * a.copies; ++to) a.out[to * a.out_stride + d] = value;
  }
}

KeyPlace key_place(const RopeTable& rope, size_t offset) {
  return {typed<float>(rope.cos), typed<float>(rope.sin), rope.cos.stride, rope.sin.stride,
          static_cast<int64_t>(offset)};
}

void describe(const Matrix& x, int64_t head_dim, const Matrix& bias, const Matrix& norm, HeadRows& rows) {
  rows.x = typed<float>(x);
  rows.stride = x.stride;
  rows.heads = static_cast<int>(x.cols / head_dim);
  rows.bias = bias.data;
  rows.bias_dtype = bias.dtype;
  rows.norm = norm.data;
  rows.norm_dtype = norm.dtype;
}

}  // namespace

void CudaBackend::qkv_to_cache(const Step& step, const Matrix& q, const Matrix& k, const Matrix& v,
                               const QkvEpilogue& epilogue, const RopeTable& rope, const KvLayer& layer) {
  if (k.rows == 0) return;
  QkvArgs a = zeroed<QkvArgs>();
  describe(q, layer.head_dim, epilogue.q_bias, epilogue.q_norm, a.q);
  if (!epilogue.q_bias && !epilogue.q_norm && epilogue.clip == 0.0F) a.q.heads = 0;
  describe(k, layer.head_dim, epilogue.k_bias, epilogue.k_norm, a.k);
  describe(v, layer.head_dim, epilogue.v_bias, Matrix(), a.v);
  a.norm_eps = epilogue.norm_eps;
  a.clip = epilogue.clip;
  a.keys = key_place(rope, layer.k_offset);
  if (epilogue.second_rope != nullptr)
    a.second_keys = key_place(*epilogue.second_rope, layer.second_k_offset);
  a.rotary_dim = static_cast<int>(rope.rotary_dim);
  a.interleaved = rope.interleaved;
  a.step = on_device(enter(step));
  a.v_offset = static_cast<int64_t>(layer.v_offset);
  a.k_dtype = layer.k_dtype;
  a.v_dtype = layer.v_dtype;
  a.head_dim = static_cast<int>(layer.head_dim);
  a.n_rows = k.rows;
  a.saturated = static_cast<unsigned long long*>(saturated_.data());
  const int64_t warps = k.rows * (a.q.heads + a.k.heads + a.v.heads);
  const size_t shared_bytes = static_cast<size_t>(kWarps * layer.head_dim) * sizeof(float);
  launch(qkv_to_cache_kernel, dim3(to_unsigned(ceil_div<int64_t>(warps, kWarps))), dim3(kWarps * kWarpSize),
         shared_bytes, queue_, a);
}

void CudaBackend::keys_from_cache(const Step& step, const KvLayer& layer, int64_t first, const Matrix& out) {
  const SequenceTables& tables = enter(step);
  if (tables.rows == 0) return;
  KeyArgs a = zeroed<KeyArgs>();
  a.step = on_device(tables);
  a.k_offset = static_cast<int64_t>(layer.k_offset);
  a.k_dtype = layer.k_dtype;
  a.head_dim = static_cast<int>(layer.head_dim);
  a.first = static_cast<int>(first);
  a.out = typed<float>(out);
  a.out_stride = out.stride;
  a.cols = static_cast<int>(out.cols);
  a.n_rows = tables.rows;
  a.copies = static_cast<int>(out.rows / tables.rows);
  launch(keys_from_cache_kernel, dim3(to_unsigned(ceil_div<int64_t>(a.n_rows, kWarps))),
         dim3(kWarps * kWarpSize), 0, queue_, a);
}

}  // namespace lariat
