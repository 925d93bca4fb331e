#pragma once
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/spec.h"

namespace lariat {

// View of the first rows * cols floats of a buffer or matrix.
inline Matrix f32(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::kF32, rows, cols};
}
inline Matrix f32(const Matrix& matrix, int64_t rows, int64_t cols) {
  return {matrix.data, DType::kF32, rows, cols};
}

// Activations of a step: f32 views into one block of backend memory, one row per token unless stated.
struct Activations {
  Matrix residual;               // [hidden]: residual stream
  Matrix normed;                 // [hidden]: norm of the residual for the next block, then the block's output
  Matrix parallel;               // [hidden]: second norm, for the feed-forward of a parallel layer
  std::vector<RopeTable> ropes;  // one per RoPE of the model, then more with the first one's pairs

  // Working memory of a layer, divided by the layer's widths: queries, keys, values and attention output;
  // then the feed-forward's inner values, or gate and up of the experts.
  Matrix block;

  // Experts, sized for the largest layer: router logits [n], ids and weights of chosen experts [n_chosen],
  // and their outputs, [tokens * n_chosen, hidden].
  Matrix router_logits, expert_ids, expert_weights, expert_outputs;

  // Latent attention, widest layer: queries' latent row [q_rank], part of queries or values [n_heads * size].
  Matrix latent_row, latent_heads;

  int64_t room = 0;  // capacity in tokens
  int64_t n_tokens() const { return residual.rows; }
  // cos/sin table of a layer (AttentionSpec::rope); -1: a table without pairs.
  RopeTable rope(int index) const;
  Routing routing(int64_t n_chosen) const {
    return {static_cast<int32_t*>(expert_ids.data), f32(expert_weights, n_tokens(), n_chosen)};
  }
};

// A matrix's memory viewed as the input of a linear (Weight::input).
inline Matrix as(const Matrix& matrix, DType dtype) { return {matrix.data, dtype, matrix.rows, matrix.cols}; }

// Attention's division of the block: q, k and v side by side in the rows of one matrix, then the attention
// output, [tokens, columns of q].
struct QkvBlock {
  Matrix all, q, k, v, attended;
};
QkvBlock qkv_of(const Activations& a, const AttentionSpec& attention);
// Division for latent attention with q_cols query columns, a matrix each: k is the cached row; no v.
QkvBlock latent_qkv_of(const Activations& a, const AttentionSpec& attention, int64_t q_cols);

// Memory of a decoder's activations: one allocation, since a backend may record addresses of equal steps.
class ActivationMemory {
 public:
  // least: initial capacity in tokens; a longer step reallocates. Host memory is touched only when used.
  ActivationMemory(const ModelSpec& spec, std::span<const RopeScaling> ropes, Backend& backend,
                   int64_t least);

  // Valid until the next call. n_ropes: number of RoPE tables, at least ropes.size(), never decreasing.
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
  size_t n_ropes_ = 0;  // capacity in RoPE tables
  Backend& backend_;
  Widths widths_;
  int64_t least_;
  Buffer memory_;
  Activations activations_;
};

}  // namespace lariat
