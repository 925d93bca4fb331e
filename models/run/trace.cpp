#include "models/run/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/kv_values.h"

namespace lariat {
namespace {

// A sequence's keys or values of one layer: [position][head][d].
std::vector<float> cached(Backend& backend, const StepSequence& sequence, const KvLayer& layer, bool keys) {
  const int64_t n_positions = sequence.first_position + sequence.n_tokens;
  const int64_t per_position = layer.n_kv_heads * layer.head_dim;
  const DType dtype = keys ? layer.k_dtype : layer.v_dtype;
  std::vector<char> page(static_cast<size_t>(kKvPage * layer.n_kv_heads) * kv_bytes(dtype, layer.head_dim));
  std::vector<float> rows(static_cast<size_t>(n_positions * per_position));
  for (int64_t p = 0; p < n_positions; ++p) {
    if (p % kKvPage == 0) {
      void* const data = sequence.pages[p / kKvPage];
      backend.copy_out(page.data(), keys ? layer.keys(data) : layer.values(data), page.size());
    }
    for (int64_t i = 0; i < per_position; ++i) {
      const int64_t head = i / layer.head_dim, d = i % layer.head_dim;
      rows[static_cast<size_t>(p * per_position + i)] =
          keys ? load_f32(page.data(), dtype, kv_index(head, p, d, layer.head_dim))
               : load_value(layer, page.data(), head, p, d);
    }
  }
  return rows;
}

// q of one head, rotated, scaled and weighed as in attention. scale: factor of all dimensions.
std::vector<double> rotated(const float* q, const float* cos, const float* sin, double q_scale,
                            const RopeTable& rope, const KvLayer& layer, double scale,
                            std::span<const float> weight) {
  std::vector<double> out(q, q + layer.head_dim);
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    double& a = out[static_cast<size_t>(rope.interleaved ? 2 * i : i)];
    double& b = out[static_cast<size_t>(rope.interleaved ? 2 * i + 1 : i + half)];
    const double x = a, y = b;
    a = q_scale * (x * cos[i] - y * sin[i]);
    b = q_scale * (x * sin[i] + y * cos[i]);
  }
  for (size_t d = 0; d < out.size(); ++d) out[d] *= weight.empty() ? scale : scale * weight[d];
  return out;
}

}  // namespace

void trace_matrix(Backend& backend, const TraceFn& trace, const std::string& name, const Matrix& matrix) {
  trace(name, matrix.cols, to_host(backend, matrix));
}

void trace_attention(Backend& backend, const TraceFn& trace, const std::string& prefix,
                     const AttentionView& view) {
  const KvLayer& layer = view.cache;
  const int64_t per_position = layer.n_kv_heads * layer.head_dim, n_heads = view.params.n_heads;
  const std::vector<float> q = to_host(backend, view.q), cos = to_host(backend, view.seen.rope.cos);
  const std::vector<float> sin = to_host(backend, view.seen.rope.sin),
                           q_scale = to_host(backend, view.seen.rope.q_scale),
                           weight = to_host(backend, view.params.q_weight);
  const Matrix& whole = view.seen.rope.whole_q_scale;
  const std::vector<float> whole_q_scale =
      whole ? to_host(backend, whole) : std::vector<float>(q_scale.size(), 1.0F);
  const std::vector<float> slopes = view.params.slopes ? to_host(backend, view.params.slopes)
                                                       : std::vector<float>(static_cast<size_t>(n_heads));
  std::vector<float> k, v, scores_max;
  int64_t row = 0;
  for (const StepSequence& sequence : view.sequences) {
    const std::vector<float> keys = cached(backend, sequence, layer, true);
    const std::vector<float> values = cached(backend, sequence, layer, false);
    const int64_t old = sequence.first_position * per_position;
    k.insert(k.end(), keys.begin() + old, keys.end());
    v.insert(v.end(), values.begin() + old, values.end());
    for (int64_t i = 0; i < sequence.n_tokens; ++i, ++row) {
      const int64_t position = sequence.first_position + i, first = view.seen.begin.at(position);
      for (int64_t head = 0; head < n_heads; ++head) {
        const auto query = rotated(
            q.data() + row * view.q.cols + head * layer.head_dim, cos.data() + row * view.seen.rope.cos.cols,
            sin.data() + row * view.seen.rope.sin.cols, q_scale[static_cast<size_t>(row)], view.seen.rope,
            layer, static_cast<double>(view.params.scale) * whole_q_scale[static_cast<size_t>(row)], weight);
        const int64_t kv_head = head / (n_heads / layer.n_kv_heads);
        double largest = -std::numeric_limits<double>::infinity();
        for (int64_t j = first; j < view.seen.end.at(position); ++j) {
          const float* key = keys.data() + j * per_position + kv_head * layer.head_dim;
          double score = 0;
          for (int64_t d = 0; d < layer.head_dim; ++d) score += query[static_cast<size_t>(d)] * key[d];
          const double cap = view.params.softcap;
          if (cap > 0) score = cap * std::tanh(score / cap);
          largest = std::max(largest,
                             score + slopes[static_cast<size_t>(head)] * static_cast<double>(j - position));
        }
        scores_max.push_back(static_cast<float>(largest));
      }
    }
  }
  trace(prefix + "q", view.q.cols, q);
  trace(prefix + "k", per_position, k);
  trace(prefix + "v", per_position, v);
  trace(prefix + "scores_max", n_heads, scores_max);
}

}  // namespace lariat
