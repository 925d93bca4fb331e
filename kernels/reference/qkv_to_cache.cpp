#include <algorithm>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

// Head `head` of row `token`: biased and normalised, where the model does that.
std::vector<double> prepared_head(const Matrix& x, int64_t token, int64_t head, int64_t head_dim,
                                  const Matrix& bias, const Matrix& norm, double eps) {
  std::vector<double> values(static_cast<size_t>(head_dim));
  for (int64_t d = 0; d < head_dim; ++d) {
    const int64_t column = head * head_dim + d;
    values[static_cast<size_t>(d)] =
        reference::get(x, token, column) + (bias ? reference::get(bias, 0, column) : 0.0);
  }
  if (norm) reference::normalise(values, norm, eps);
  return values;
}

void store_head(const std::vector<double>& values, void* block, DType dtype, int64_t head, int64_t position) {
  const double largest = dtype == DType::kF16 ? 65504.0 : HUGE_VAL;
  const auto head_dim = static_cast<int64_t>(values.size());
  for (int64_t d = 0; d < head_dim; ++d) {
    const double value = std::clamp(values[static_cast<size_t>(d)], -largest, largest);
    store_f32(block, dtype, kv_index(head, position, d, head_dim), static_cast<float>(value));
  }
}

}  // namespace

void ReferenceBackend::qkv_to_cache(const Matrix& q, const Matrix& k, const Matrix& v,
                                    const QkvEpilogue& post, const RopeTable& rope, const KvLayer& cache,
                                    int64_t first_position) {
  const int64_t head_dim = cache.head_dim;
  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t head = 0; head < q.cols / head_dim; ++head) {
      const auto values = prepared_head(q, i, head, head_dim, post.q_bias, post.q_norm, post.norm_eps);
      for (int64_t d = 0; d < head_dim; ++d) {
        reference::put(q, i, head * head_dim + d, values[static_cast<size_t>(d)]);
      }
    }
    const int64_t position = first_position + i;
    for (int64_t head = 0; head < cache.n_kv_heads; ++head) {
      auto key = prepared_head(k, i, head, head_dim, post.k_bias, post.k_norm, post.norm_eps);
      for (int64_t pair = 0; pair < rope.rotary_dim / 2; ++pair) {
        reference::rotate_pair(key.data(), pair, rope.rotary_dim, rope.interleaved,
                               reference::get(rope.cos, i, pair), reference::get(rope.sin, i, pair));
      }
      store_head(key, cache.k_blocks[position / kKvPage], cache.k_dtype, head, position);
      const auto value = prepared_head(v, i, head, head_dim, post.v_bias, Matrix(), 0.0);
      store_head(value, cache.v_blocks[position / kKvPage], cache.v_dtype, head, position);
    }
  }
}

}  // namespace lariat
