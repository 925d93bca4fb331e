#include "kernels/cuda/attention.cuh"

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"

namespace lariat {
namespace cuda {

bool tensor_cores_support(DType k_dtype, DType v_dtype, int64_t head_dim) {
  const bool types = k_dtype != DType::kF32 && v_dtype != DType::kF32 &&
                     !(k_dtype == DType::kBF16 && v_dtype == DType::kF16);
  return types && head_dim % 8 == 0 && head_dim <= 256;
}

int attention_splits(int64_t blocks, int64_t key_tiles, int64_t min_tiles, int multiprocessors) {
  constexpr int64_t kMaxSplits = 64;
  const int64_t wanted = ceil_div<int64_t>(int64_t{2} * multiprocessors, blocks);
  const int64_t possible = std::min(kMaxSplits, key_tiles / min_tiles);
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, possible), 1, kMaxSplits));
}

}  // namespace cuda

namespace {

using namespace cuda;

constexpr float kLog2E = 1.4426950408889634F;
constexpr int64_t kDecodeRows = 32;  // packed rows up to which the kernel with 16 of them per block is better

Attention describe(const Matrix& q, const RopeTable& rope, const KvLayer& cache, const AttentionParams& shape,
                   const Matrix& out) {
  Attention a = {};
  a.q = typed<float>(q);
  a.q_stride = q.stride;
  a.cos = typed<float>(rope.cos);
  a.sin = typed<float>(rope.sin);
  a.cos_stride = rope.cos.stride;
  a.sin_stride = rope.sin.stride;
  a.rotary_dim = static_cast<int>(rope.rotary_dim);
  a.interleaved = rope.interleaved;
  a.scale = shape.scale * kLog2E;
  a.rotated_scale = a.scale * rope.q_scale;
  a.k_dtype = cache.k_dtype;
  a.v_dtype = cache.v_dtype;
  a.n_heads = static_cast<int>(shape.n_heads);
  a.n_kv_heads = static_cast<int>(cache.n_kv_heads);
  a.head_dim = static_cast<int>(cache.head_dim);
  a.n_tokens = q.rows;
  a.window = shape.sliding_window;
  a.out = typed<float>(out);
  a.out_stride = out.stride;
  a.splits = 1;
  return a;
}

}  // namespace

void CudaBackend::attention(const Matrix& q, const RopeTable& rope, const KvLayer& cache,
                            int64_t first_position, const AttentionParams& shape, const Matrix& out) {
  if (q.rows == 0) return;
  Attention a = describe(q, rope, cache, shape, out);
  a.first_position = step_position(rope, first_position);
  a.planned_length = planned_length(rope, first_position + q.rows);
  a.k_blocks = device_blocks(cache.k_blocks, first_position + q.rows);
  a.v_blocks = device_blocks(cache.v_blocks, first_position + q.rows);

  const bool tensor_cores = tensor_cores_support(a.k_dtype, a.v_dtype, a.head_dim);
  const bool decode = tensor_cores && a.rows() <= kDecodeRows;
  const int multiprocessors = device_.multiprocessors;
  a.splits = decode         ? decode_splits(a, multiprocessors)
             : tensor_cores ? prefill_splits(a, multiprocessors)
                            : plain_splits(a, multiprocessors);
  if (a.splits > 1) {
    const auto rows = static_cast<size_t>(a.splits * a.n_tokens * a.n_heads);
    const size_t state_bytes = rows * sizeof(float2);
    auto* memory = static_cast<char*>(
        scratch(Scratch::kAttention, state_bytes + rows * static_cast<size_t>(a.head_dim) * sizeof(float)));
    a.state = reinterpret_cast<float2*>(memory);
    a.partial = reinterpret_cast<float*>(memory + state_bytes);
  }
  (decode         ? launch_attention_decode
   : tensor_cores ? launch_attention_prefill
                  : launch_attention_plain)(a, stream_);
  if (a.splits > 1) launch_attention_merge(a, stream_);
}

}  // namespace lariat
