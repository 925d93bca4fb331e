#pragma once
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/spec/spec.h"

namespace lariat {

inline Matrix f32(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::kF32, rows, cols};
}
inline Matrix f32(const Matrix& matrix, int64_t rows, int64_t cols) {
  return {matrix.data, DType::kF32, rows, cols};
}

// Activations of a step: f32 views into one allocation, one row per token unless stated.
struct Activations {
  Matrix residual;               // [hidden]
  Matrix normed;                 // [hidden]: the next block's normed input, then the block's output
  Matrix parallel;               // [hidden]: normed input of a parallel layer's feed-forward
  std::vector<RopeTable> ropes;  // one per RoPE of the model, then more with the first's pairs

  // Working memory of a layer: queries, keys, values and attention output; then the feed-forward's inner
  // values.
  Matrix block;

  // Experts, sized for the largest layer: router logits [n], then the shared expert's if any, chosen experts'
  // ids and weights [n_chosen], outputs [tokens * n_chosen, hidden].
  Matrix router_logits, expert_ids, expert_weights, expert_outputs;

  // Latent attention, widest layer: latent queries [q_rank], part of queries or values [n_heads * size].
  Matrix latent_row, latent_heads;

  int64_t room = 0;  // capacity in tokens
  int64_t n_tokens() const { return residual.rows; }
  // Table of AttentionSpec::rope; -1: a table without pairs.
  RopeTable rope(int index) const;
  Routing routing(const ExpertsSpec& of) const {
    const Matrix logits = f32(router_logits, n_tokens(), of.n_logits());
    return {static_cast<int32_t*>(expert_ids.data), f32(expert_weights, n_tokens(), of.router.n_chosen),
            of.shared_router ? logits.column_range(of.n, 1) : Matrix()};
  }
};

// View as the input of a linear (Weight::input).
inline Matrix as(const Matrix& matrix, DType dtype) { return {matrix.data, dtype, matrix.rows, matrix.cols}; }

// Attention's division of the block: q, k and v side by side in `all`, then the output, [tokens, q columns].
struct QkvBlock {
  Matrix all, q, k, v, attended;
};
QkvBlock qkv_of(const Activations& a, const AttentionSpec& attention);
// Latent attention with q_cols query columns: k is the cached row; no v.
QkvBlock latent_qkv_of(const Activations& a, const AttentionSpec& attention, int64_t q_cols);

// Activations in one allocation, since a backend may record addresses of equal steps.
class ActivationMemory {
 public:
  // least: initial capacity in tokens.
  ActivationMemory(const ModelSpec& spec, std::span<const RopeScaling> ropes, Backend& backend,
                   int64_t least);

  // Valid until the next call. n_ropes: RoPE tables, never fewer than before or than ropes.size().
  const Activations& for_step(int64_t n_tokens, size_t n_ropes);

 private:
  // Columns of each matrix in the widest layer.
  struct Widths {
    int64_t block = 0, experts = 0, chosen = 0, latent_row = 0, latent_heads = 0;
    bool parallel = false;
  };
  size_t lay_out(int64_t n_tokens, std::byte* memory, Activations& to) const;

  const ModelSpec& spec_;
  std::span<const RopeScaling> ropes_;
  size_t n_ropes_ = 0;
  Backend& backend_;
  Widths widths_;
  int64_t least_;
  Buffer memory_;
  Activations activations_;
};

}  // namespace lariat
