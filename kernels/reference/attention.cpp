#include <algorithm>
#include <cmath>

#include "kernels/kv_values.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/scalar.h"

namespace lariat {
namespace {

std::vector<double> rotated_query(const Matrix& q, int64_t token, int64_t head, int64_t head_dim,
                                  const RopeTable& rope, const Matrix& weight) {
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
  const double whole = rope.whole_q_scale ? reference::get(rope.whole_q_scale, token, 0) : 1.0;
  for (int64_t d = 0; d < head_dim; ++d)
    query[static_cast<size_t>(d)] *= whole * (weight ? reference::get(weight, 0, d) : 1.0);
  return query;
}

struct Softmax {
  double largest = -INFINITY, sum = 0;
};

Softmax softmax(std::vector<double>& scores) {
  Softmax of;
  for (const double score : scores) of.largest = std::max(of.largest, score);
  for (double& score : scores) of.sum += score = std::exp(score - of.largest);
  for (double& score : scores) score /= of.sum;
  return of;
}

// Token i of its sequence is row `row` of the step.
Softmax attend(const Matrix& q, int64_t row, const StepSequence& sequence, int64_t i,
               std::span<const KeyRange> ranges, const KvLayer& layer, int64_t head,
               const AttentionParams& params, std::span<double> out) {
  const int64_t kv_head = head / (params.n_heads / layer.n_kv_heads);
  const double slope = params.slopes ? reference::get(params.slopes, 0, head) : 0.0;
  const int64_t position = sequence.first_position + i, head_dim = layer.head_dim;
  const KvLayer second = layer.with_second_keys();
  std::vector<double> weights;
  std::vector<int64_t> seen;
  for (const KeyRange& range : ranges) {
    const std::vector<double> query = rotated_query(q, row, head, head_dim, range.rope, params.q_weight);
    for (int64_t j = range.begin.at(position); j < range.end.at(position); ++j) {
      if (sequence.pages[j / kKvPage] == nullptr) continue;
      const KvLayer& read = range.second ? second : layer;
      const void* keys = read.keys(sequence.pages[j / kKvPage]);
      double score = 0;
      for (int64_t d = 0; d < head_dim; ++d) {
        score +=
            query[static_cast<size_t>(d)] * load_f32(keys, layer.k_dtype, kv_index(kv_head, j, d, head_dim));
      }
      score *= params.scale;
      if (params.softcap > 0.0F) score = params.softcap * std::tanh(score / params.softcap);
      weights.push_back(score + slope * static_cast<double>(j - position));
      seen.push_back(j);
    }
  }
  if (params.sinks) weights.push_back(reference::get(params.sinks, 0, head));
  const Softmax state = softmax(weights);
  for (size_t d = 0; d < out.size(); ++d) {
    out[d] = 0;
    for (size_t w = 0; w < seen.size(); ++w) {
      void* const values = layer.values(sequence.pages[seen[w] / kKvPage]);
      out[d] += weights[w] * load_value(layer, values, kv_head, seen[w], static_cast<int64_t>(d));
    }
  }
  return state;
}

}  // namespace

void ReferenceBackend::attention(const Step& step, const Matrix& q, std::span<const KeyRange> ranges,
                                 const KvLayer& layer, const AttentionParams& params, const Matrix& out) {
  const int64_t value_dim = out.cols / params.n_heads;
  std::vector<double> sums(static_cast<size_t>(value_dim));
  int64_t row = 0;
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.n_tokens; ++i, ++row) {
      for (int64_t head = 0; head < params.n_heads; ++head) {
        const Softmax state = attend(q, row, sequence, i, ranges, layer, head, params, sums);
        if (params.state) {
          reference::put(params.state, row, head, state.largest);
          reference::put(params.state, row, params.n_heads + head, state.sum);
        }
        for (int64_t d = 0; d < value_dim; ++d) {
          reference::put(out, row, head * value_dim + d, sums[static_cast<size_t>(d)]);
        }
      }
    }
  }
}

}  // namespace lariat
