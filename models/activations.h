#pragma once
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/spec.h"

namespace lariat {

// The first rows * cols floats of a buffer, or of a matrix that has them all.
inline Matrix f32(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::kF32, rows, cols};
}
inline Matrix f32(const Matrix& matrix, int64_t rows, int64_t cols) {
  return {matrix.data, DType::kF32, rows, cols};
}

// The activations of a step. Every matrix is f32, has a row for each of the step's tokens unless said
// otherwise, and is a view into one block of backend memory.
struct Activations {
  Matrix residual;               // [hidden]: what the layers add to
  Matrix normed;                 // [hidden]: its norm, which the next block reads; then what that block adds
  Matrix parallel;               // [hidden]: its other norm, which the feed-forward of a parallel layer reads
  std::vector<RopeTable> ropes;  // one for each of the model's, and more of the first one's pairs

  // The memory that a layer works in: queries, keys, values and what is attended; then the inner values of
  // its feed-forward, of experts before the product with up and after it. A layer divides it by its own
  // widths.
  Matrix block;

  // For experts, as wide as the layer with most of them needs it: the router's logits [n], the chosen experts
  // with their weights [n_chosen], and what each makes of its token, [tokens * n_chosen, hidden].
  Matrix router_logits, expert_ids, expert_weights, expert_outputs;

  // For latent attention, as wide as the widest layer needs it: the row that queries are made of [q_rank],
  // and a part of each head's query, or its values [n_heads * size].
  Matrix latent_row, latent_heads;

  int64_t room = 0;  // tokens that there is memory for
  int64_t n_tokens() const { return residual.rows; }
  // The table that a layer rotates with (AttentionSpec::rope); with -1 one of no pairs.
  RopeTable rope(int index) const;
  // The choice of a layer's experts.
  Routing routing(int64_t n_chosen) const {
    return {static_cast<int32_t*>(expert_ids.data), f32(expert_weights, n_tokens(), n_chosen)};
  }
};

// A matrix's memory as what a linear reads of it (Weight::input).
inline Matrix as(const Matrix& matrix, DType dtype) { return {matrix.data, dtype, matrix.rows, matrix.cols}; }

// A layer's attention divides the block: q, k and v side by side in the rows of one matrix, and behind it the
// result of attention, [tokens, as many columns as q].
struct QkvBlock {
  Matrix all, q, k, v, attended;
};
QkvBlock qkv_of(const Activations& a, const AttentionSpec& attention);
// The block of latent attention, with queries of so many columns: its k is the row that goes to the cache,
// and each lies in a matrix of its own. No v.
QkvBlock latent_qkv_of(const Activations& a, const AttentionSpec& attention, int64_t q_cols);

// The memory of a decoder's activations: one allocation, so that steps of one length find everything at the
// same place, which a backend may have recorded.
class ActivationMemory {
 public:
  // least: tokens that there is room for from the first step on; a longer step has it made larger. Host
  // memory that no step reaches is never touched.
  ActivationMemory(const ModelSpec& spec, std::span<const RopeScaling> ropes, Backend& backend,
                   int64_t least);

  // Those of a step of `n_tokens` tokens, valid until the next call. n_ropes: tables of RoPE, those of
  // `ropes` and more, not fewer than before.
  const Activations& for_step(int64_t n_tokens, size_t n_ropes);

 private:
  // Columns of each matrix, as wide as the widest layer needs it.
  struct Widths {
    int64_t block = 0, experts = 0, chosen = 0, latent_row = 0, latent_heads = 0;
    bool parallel = false;
  };
  size_t lay_out(int64_t n_tokens, std::byte* memory, Activations& to) const;

  const ModelSpec& spec_;
  std::span<const RopeScaling> ropes_;
  size_t n_ropes_ = 0;  // that there is room for
  Backend& backend_;
  Widths widths_;
  int64_t least_;
  Buffer memory_;
  Activations activations_;
};

}  // namespace lariat
