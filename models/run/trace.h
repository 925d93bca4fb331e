#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/to_host.h"

namespace lariat {

// Receives each layer's results: f32 rows in host memory, one per token, valid during the call. Names are
// "layers.I." and one of
//   q             after biases and head norms, before RoPE           [n_heads * head_dim]
//   k, v          as cached: k rotated, without attention factor     [n_kv_heads * head_dim]
//   scores_max    the largest score of each head, capped, with ALiBi [n_heads]
//   attention     output of attention, before its norm               [hidden]
//   feed_forward  output of the feed-forward, before its norm        [hidden]
//   output        the residual after the layer                       [hidden]
// Latent attention: q, k and v are cached rows (LatentSpec), and long steps stay absorbed. Norms after RoPE:
// q and k lack their weights. A backend with Epilogue::add_to adds products separately while tracing:
// f32 sums may round differently.
using TraceFn = std::function<void(const std::string& name, int64_t cols, std::span<const float> rows)>;

void trace_matrix(Backend& backend, const TraceFn& trace, const std::string& name, const Matrix& matrix);

// Operands of attention, after qkv_to_cache.
struct AttentionView {
  const Matrix& q;
  const KeyRange& seen;
  std::span<const StepSequence> sequences;
  const KvLayer& cache;
  const AttentionParams& params;
};
// Passes q, k, v and scores_max; `prefix` is "layers.I.".
void trace_attention(Backend& backend, const TraceFn& trace, const std::string& prefix,
                     const AttentionView& view);

}  // namespace lariat
