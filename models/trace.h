#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace lariat {

// Sees what each layer makes of a step's tokens: called with f32 rows in host memory, one per token, valid
// during the call. Names are "layers.I." and one of
//   q             after biases and head norms, before RoPE           [n_heads * head_dim]
//   k, v          as cached: k rotated, without attention factor     [n_kv_heads * head_dim]
//   scores_max    the largest score of each head, capped, with ALiBi [n_heads]
//   attention     what attention makes, before a norm behind it      [hidden]
//   feed_forward  likewise the feed-forward                          [hidden]
//   output        the residual after the layer                       [hidden]
// In latent attention q, k and v are what attention runs over: rows, not heads (LatentSpec), in long steps
// too while someone looks.
// It costs a copy of all of them and is meant for comparing a model with another implementation of it. A
// backend that adds products to the residual at once (Epilogue::add_to) adds them apart meanwhile:
// its sums of f32 may round otherwise.
using TraceFn = std::function<void(const std::string& name, int64_t cols, std::span<const float> rows)>;

// A copy of a matrix of f32 in host memory.
std::vector<float> to_host(Backend& backend, const Matrix& matrix);

// Hands a matrix in backend memory to `trace`.
void trace_matrix(Backend& backend, const TraceFn& trace, const std::string& name, const Matrix& matrix);

// The operands of a layer's attention, once qkv_to_cache is done.
struct AttentionView {
  const Matrix& q;
  const KeyRange& seen;
  std::span<const StepSequence> sequences;
  const KvLayer& cache;
  const AttentionParams& params;
};
// Hands q, k, v and scores_max to `trace`; `prefix` is "layers.I.".
void trace_attention(Backend& backend, const TraceFn& trace, const std::string& prefix,
                     const AttentionView& view);

}  // namespace lariat
