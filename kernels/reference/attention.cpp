#include <algorithm>
#include <cmath>

#include "kernels/kv_values.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

// rope(q[token][head]), its rotated dimensions times rope.q_scale[token].
std::vector<double> rotated_query(const Matrix& q, int64_t token, int64_t head, int64_t head_dim,
                                  const RopeTable& rope) {
  std::vector<double> query(static_cast<size_t>(head_dim));
  for (int64_t d = 0; d < head_dim; ++d) {
    query[static_cast<size_t>(d)] = reference::get(q, token, head * head_dim + d);
  }
  const double scale = reference::get(rope.q_scale, token, 0);
  for (int64_t pair = 0; pair < rope.rotary_dim / 2; ++pair) {
    reference::rotate_pair(query.data(), pair, rope.rotary_dim, rope.interleaved,
                           scale * reference::get(rope.cos, token, pair),
                           scale * reference::get(rope.sin, token, pair));
  }
  return query;
}

// Softmax of scores, in place.
void softmax(std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
}

// One head of one token at `position`: softmax over the positions it sees, then their values' weighted sum.
void attend(std::span<const double> query, const StepSequence& sequence, int64_t position,
            const KvLayer& layer, int64_t head, const AttentionParams& params, std::span<double> out) {
  const int64_t kv_head = head / (params.n_heads / layer.n_kv_heads);
  const double slope = params.slopes ? reference::get(params.slopes, 0, head) : 0.0;
  const int64_t window = params.sliding_window, head_dim = layer.head_dim,
                value_dim = static_cast<int64_t>(out.size());
  const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
  std::vector<double> weights;
  for (int64_t j = first; j <= position; ++j) {
    const void* keys = layer.keys(sequence.pages[j / kKvPage]);
    double score = 0;
    for (int64_t d = 0; d < head_dim; ++d) {
      score +=
          query[static_cast<size_t>(d)] * load_f32(keys, layer.k_dtype, kv_index(kv_head, j, d, head_dim));
    }
    score *= params.scale;
    if (params.softcap > 0.0F) score = params.softcap * std::tanh(score / params.softcap);
    weights.push_back(score + slope * static_cast<double>(j - position));
  }
  softmax(weights);
  for (int64_t d = 0; d < value_dim; ++d) {
    double sum = 0;
    for (int64_t j = first; j <= position; ++j) {
      sum += weights[static_cast<size_t>(j - first)] *
             load_value(layer, layer.values(sequence.pages[j / kKvPage]), kv_head, j, d);
    }
    out[static_cast<size_t>(d)] = sum;
  }
}

}  // namespace

void ReferenceBackend::attention(const Step& step, const Matrix& q, const RopeTable& rope,
                                 const KvLayer& layer, const AttentionParams& params, const Matrix& out) {
  const int64_t head_dim = layer.head_dim, value_dim = out.cols / params.n_heads;
  std::vector<double> sums(static_cast<size_t>(value_dim));
  int64_t row = 0;
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.n_tokens; ++i, ++row) {
      for (int64_t head = 0; head < params.n_heads; ++head) {
        attend(rotated_query(q, row, head, head_dim, rope), sequence, sequence.first_position + i, layer,
               head, params, sums);
        for (int64_t d = 0; d < value_dim; ++d) {
          reference::put(out, row, head * value_dim + d, sums[static_cast<size_t>(d)]);
        }
      }
    }
  }
}

}  // namespace lariat
