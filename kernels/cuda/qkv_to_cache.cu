#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

namespace lariat {
namespace {

using namespace cuda;

// One of q, k and v: n_heads rows per token, and what is done to them.
struct HeadRows {
  float* x;
  int64_t stride;
  int heads;
  const void* bias;  // or null
  DType bias_dtype;
  const void* norm;  // or null
  DType norm_dtype;
};

struct QkvArgs {
  HeadRows q, k, v;  // q.heads is 0 when q has neither bias nor norm
  float norm_eps;
  const float *cos, *sin;
  int64_t cos_stride, sin_stride;
  int rotary_dim;
  bool interleaved;
  void* const* k_blocks;
  void* const* v_blocks;
  DType k_dtype, v_dtype;
  int head_dim;
  FirstPosition first_position;
  int64_t n_tokens;
};

constexpr int kWarps = 4;

// row = norm(x + bias), by one warp.
__device__ void prepare(const HeadRows& s, const float* x, int head, int head_dim, float eps, float* row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float sum = 0.0F;
  for (int d = lane; d < head_dim; d += kWarpSize) {
    float value = x[d];
    if (s.bias != nullptr) value += load_any(s.bias, s.bias_dtype, int64_t{head} * head_dim + d);
    row[d] = value;
    sum += value * value;
  }
  if (s.norm == nullptr) return;
  const float scale = 1.0F / sqrtf(warp_sum(sum) / static_cast<float>(head_dim) + eps);
  for (int d = lane; d < head_dim; d += kWarpSize) row[d] *= scale * load_any(s.norm, s.norm_dtype, d);
}

// Writes `row`, rotated for `token`, to its place in the cache's keys.
__device__ void store_key(const QkvArgs& a, const float* row, int head, int64_t token) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t position = a.first_position.get() + token;
  void* block = a.k_blocks[position / kKvPage];
  const int64_t base = kv_index(head, position, 0, a.head_dim);
  const int half = a.rotary_dim / 2;
  for (int pair = lane; pair < half; pair += kWarpSize) {
    const int first = a.interleaved ? 2 * pair : pair;
    const int second = a.interleaved ? 2 * pair + 1 : pair + half;
    const float c = a.cos[token * a.cos_stride + pair], s = a.sin[token * a.sin_stride + pair];
    store_to_cache(block, a.k_dtype, base + first, row[first] * c - row[second] * s);
    store_to_cache(block, a.k_dtype, base + second, row[first] * s + row[second] * c);
  }
  for (int d = a.rotary_dim + lane; d < a.head_dim; d += kWarpSize) {
    store_to_cache(block, a.k_dtype, base + d, row[d]);
  }
}

// Grid: one warp per token and head of q, k and v (of q only when it has a bias or a norm); 4 warps a block;
// shared memory: one head per warp. Bound by memory, and by latency for a single token.
__global__ void qkv_to_cache_kernel(const __grid_constant__ QkvArgs a) {
  LARIAT_DYNAMIC_SHARED(raw);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float* row = reinterpret_cast<float*>(raw) + warp * a.head_dim;
  const int heads = a.q.heads + a.k.heads + a.v.heads;
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t token = index / heads;
  int head = static_cast<int>(index % heads);
  if (token >= a.n_tokens) return;

  if (head < a.q.heads) {
    float* x = a.q.x + token * a.q.stride + int64_t{head} * a.head_dim;
    prepare(a.q, x, head, a.head_dim, a.norm_eps, row);
    for (int d = lane; d < a.head_dim; d += kWarpSize) x[d] = row[d];
    return;
  }
  head -= a.q.heads;
  if (head < a.k.heads) {
    const float* x = a.k.x + token * a.k.stride + int64_t{head} * a.head_dim;
    prepare(a.k, x, head, a.head_dim, a.norm_eps, row);
    __syncwarp();  // a pair's halves were written by different lanes
    store_key(a, row, head, token);
    return;
  }
  head -= a.k.heads;
  const float* x = a.v.x + token * a.v.stride + int64_t{head} * a.head_dim;
  prepare(a.v, x, head, a.head_dim, a.norm_eps, row);
  const int64_t position = a.first_position.get() + token;
  void* block = a.v_blocks[position / kKvPage];
  const int64_t base = kv_index(head, position, 0, a.head_dim);
  for (int d = lane; d < a.head_dim; d += kWarpSize) store_to_cache(block, a.v_dtype, base + d, row[d]);
}

HeadRows head_rows(const Matrix& x, int64_t head_dim, const Matrix& bias, const Matrix& norm) {
  return {typed<float>(x), x.stride,  static_cast<int>(x.cols / head_dim), bias.data, bias.dtype,
          norm.data,       norm.dtype};
}

}  // namespace

void CudaBackend::qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v, const QkvEpilogue& post,
                               const RopeTable& rope, const KvLayer& cache, int64_t first_position) {
  const int64_t n_positions = first_position + k.rows;
  QkvArgs a = {};
  a.q = head_rows(q, cache.head_dim, post.q_bias, post.q_norm);
  if (!post.q_bias && !post.q_norm) a.q.heads = 0;
  a.k = head_rows(k, cache.head_dim, post.k_bias, post.k_norm);
  a.v = head_rows(v, cache.head_dim, post.v_bias, Matrix());
  a.norm_eps = post.norm_eps;
  a.cos = typed<float>(rope.cos);
  a.sin = typed<float>(rope.sin);
  a.cos_stride = rope.cos.stride;
  a.sin_stride = rope.sin.stride;
  a.rotary_dim = static_cast<int>(rope.rotary_dim);
  a.interleaved = rope.interleaved;
  a.k_blocks = device_blocks(cache.k_blocks, n_positions);
  a.v_blocks = device_blocks(cache.v_blocks, n_positions);
  a.k_dtype = cache.k_dtype;
  a.v_dtype = cache.v_dtype;
  a.head_dim = static_cast<int>(cache.head_dim);
  a.first_position = step_position(rope, first_position);
  a.n_tokens = k.rows;
  const int64_t warps = k.rows * (a.q.heads + a.k.heads + a.v.heads);
  const size_t shared_bytes = static_cast<size_t>(kWarps * cache.head_dim) * sizeof(float);
  launch(qkv_to_cache_kernel, dim3(to_unsigned(ceil_div<int64_t>(warps, kWarps))), dim3(kWarps * kWarpSize),
         shared_bytes, stream_, a);
}

}  // namespace lariat
