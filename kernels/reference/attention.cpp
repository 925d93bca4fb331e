#include <algorithm>

#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

// rope(q[token][head]), its rotated dimensions times rope.q_scale.
std::vector<double> rotated_query(const Matrix& q, int64_t token, int64_t head, int64_t head_dim,
                                  const RopeTable& rope) {
  std::vector<double> query(static_cast<size_t>(head_dim));
  for (int64_t d = 0; d < head_dim; ++d) {
    query[static_cast<size_t>(d)] = reference::get(q, token, head * head_dim + d);
  }
  for (int64_t pair = 0; pair < rope.rotary_dim / 2; ++pair) {
    reference::rotate_pair(query.data(), pair, rope.rotary_dim, rope.interleaved,
                           rope.q_scale * reference::get(rope.cos, token, pair),
                           rope.q_scale * reference::get(rope.sin, token, pair));
  }
  return query;
}

double cached(void* const* blocks, DType dtype, int64_t head, int64_t position, int64_t d, int64_t head_dim) {
  return load_f32(blocks[position / kKvPage], dtype, kv_index(head, position, d, head_dim));
}

// Softmax of scores, in place.
void softmax(std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
}

}  // namespace

void ReferenceBackend::attention(const Matrix& q, const RopeTable& rope, const KvLayer& cache,
                                 int64_t first_position, const AttentionParams& shape, const Matrix& out) {
  const int64_t head_dim = cache.head_dim, group = shape.n_heads / cache.n_kv_heads;
  for (int64_t i = 0; i < q.rows; ++i) {
    const int64_t position = first_position + i;
    const int64_t first =
        shape.sliding_window > 0 ? std::max<int64_t>(0, position - shape.sliding_window + 1) : 0;
    for (int64_t head = 0; head < shape.n_heads; ++head) {
      const std::vector<double> query = rotated_query(q, i, head, head_dim, rope);
      std::vector<double> weights;
      for (int64_t j = first; j <= position; ++j) {
        double score = 0;
        for (int64_t d = 0; d < head_dim; ++d) {
          score += query[static_cast<size_t>(d)] *
                   cached(cache.k_blocks, cache.k_dtype, head / group, j, d, head_dim);
        }
        weights.push_back(shape.scale * score);
      }
      softmax(weights);
      for (int64_t d = 0; d < head_dim; ++d) {
        double sum = 0;
        for (int64_t j = first; j <= position; ++j) {
          sum += weights[static_cast<size_t>(j - first)] *
                 cached(cache.v_blocks, cache.v_dtype, head / group, j, d, head_dim);
        }
        reference::put(out, i, head * head_dim + d, sum);
      }
    }
  }
}

}  // namespace lariat
