#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/spec.h"
#include "models/trace.h"
#include "models/weights.h"

namespace lariat {

// The first rows * cols floats of a buffer.
inline Matrix f32(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::kF32, rows, cols};
}

// The forward pass of a decoder, as its ModelSpec describes it, over a backend. Owns the activations.
class Decoder {
 public:
  // rope: the pairs of a head that are rotated, and how they are paired. geometry: what a page of the cache
  // holds. compute: precision of the matrix products' inputs, see Backend::matmul. All that is passed by
  // reference must outlive the decoder.
  Decoder(const ModelSpec& spec, const Weights& weights, const RopeScaling& rope, const KvGeometry& geometry,
          Backend& backend, DType compute);

  // From now on, every layer shows what it makes (empty: no longer).
  void observe(TraceFn trace) { trace_ = std::move(trace); }

  // How much memory the keys and values that a long step of latent attention makes may take
  // (latent_attention.cpp). Heads are made by as many at a time as fit; where one does not, none is made.
  void set_latent_workspace(int64_t bytes) { latent_workspace_ = bytes; }

  // Runs a step's tokens (ids in [0, vocab_size)) through every layer, writing their keys and values into the
  // sequences' pages, which have room for the new positions. ropes: the frequencies of each sequence, which
  // its cached keys are rotated with; local_ropes: likewise, of layers with ModelSpec::local_rope. Returns
  // the final hidden states after the last norm, f32 [tokens, hidden], valid until the next call.
  Matrix forward(const Step& step, std::span<const SequenceRope> ropes,
                 std::span<const SequenceRope> local_ropes);

  // Logits of some rows of forward()'s result: f32 [rows, vocab], valid until the next call.
  Matrix logits(const Matrix& hidden_rows);

 private:
  // Activations for up to `rows` tokens, and logits.
  struct Workspace {
    int64_t rows = 0, logit_rows = 0;
    Buffer residual, normed, parallel, logits;
    Buffer block;  // of attention: q, k, v, and what is attended; then of the feed-forward: gate and up
    Buffer rounded_normed, rounded_inner;                // in place of normed and gate, see product_input
    Buffer latent_q, heads, head_ids;                    // of latent attention
    Buffer router, experts, expert_ids, expert_weights;  // of experts
    // Of the RoPE tables, in the order of LayerRope.
    struct Angles {
      Buffer cos, sin, q_scale;
    };
    std::array<Angles, 2> angles;
  };
  void grow(Workspace& memory, int64_t rows);
  void use(Workspace& memory, int64_t n_tokens);
  RopeTable table_of(LayerRope rope) const;
  void layer(size_t index, const Step& step);
  // Whether products with all of `weights` read 16 bits on this backend. Absent weights do not count.
  bool read_rounded(std::initializer_list<const Matrix*> weights) const;
  // What they read: `plain`, which is f32, or as much of `rounded`, which is made large enough, in 16 bits.
  Matrix product_input(std::initializer_list<const Matrix*> weights, const Matrix& plain, Buffer& rounded);
  Matrix attention_input(size_t index);
  Matrix ffn_input(size_t index);
  // What a block adds to the residual: a product of x, whose out is normed_, or without x what is there.
  struct Contribution {
    size_t layer;
    const char* block;  // as a trace has it
    Matrix x;
    Product product;
  };
  void add_to_residual(const Contribution& from, const Norm& post_norm, const Norm& next_norm,
                       const Matrix& next);
  Matrix attention_block(size_t index, const Matrix& in, const Step& step);
  void project(size_t index, const Step& step, const Matrix& in, const Matrix& q, const Matrix& k,
               const Matrix& v);
  Matrix attend(size_t index, const Matrix& q, const AttentionParams& params, const Step& step);
  // Latent attention (latent_attention.cpp).
  void latent_query(size_t index, const Matrix& in, const Matrix& q, bool absorbed);
  void latent_to_cache(size_t index, const Step& step, const Matrix& in, const Matrix& k);
  Matrix latent_values(size_t index, const Matrix& attended);
  bool heads_are_cheaper(size_t index, const Step& step) const;
  Matrix attend_by_head(size_t index, const Matrix& q, const AttentionParams& params, const Step& step);
  void make_room(size_t index, const Step& step);
  void make_heads(size_t index, int64_t first_head, const Step& step);
  Matrix ffn_block(size_t index, const Matrix& in);
  Matrix inner_block(const FeedForwardSpec& spec, const LayerWeights& weights, const Matrix& in);
  void expert_block(const FeedForwardSpec& spec, const ExpertWeights& weights, const Matrix& in,
                    const Routing& routing, const Matrix& out);

  const ModelSpec& spec_;
  const Weights& weights_;
  const RopeScaling& rope_;
  const KvGeometry& geometry_;
  Backend& backend_;
  DType compute_;

  // A step of a few tokens, as decoding is, has memory of its own that never moves, so that a backend may
  // record it; the rest grows to the largest step seen.
  Workspace few_, many_;
  // Keys and values of some heads of latent attention, made for one layer and step.
  struct MadeHeads {
    int64_t n_heads = 0, n_rows = 0;  // how many positions are made at a time
    KvGeometry geometry;              // one layer
    Buffer pages, rows, k, v, head_ids;
    std::vector<void*> tables;
    std::vector<StepSequence> sequences;  // the step's, with these pages
  } made_;
  int64_t latent_workspace_ = 0;
  Buffer slopes_;             // of ALiBi
  float score_scale_ = 1.0F;  // of all layers' scores
  // The present step's activations: views into one of the two. The others are as wide as the widest layer's;
  // a layer takes its columns.
  Matrix residual_, normed_;
  Workspace* current_ = nullptr;
  int64_t n_tokens_ = 0;
  TraceFn trace_;
};

}  // namespace lariat
