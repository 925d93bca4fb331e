#pragma once
#include <vector>

#include "models/layer.h"

namespace lariat {

// Latent attention (LatentSpec) and the memory that it needs beside a step's activations. Each head has
// products of its own, which are those of experts: the head is the expert that its row goes to.
class LatentAttention {
 public:
  // workspace: how many bytes the keys and values may take that a long step makes. Heads are made by as many
  // at a time as fit; where one does not, none is made.
  LatentAttention(const ModelSpec& spec, Backend& backend, int64_t workspace);

  // The attention of a layer whose input is `in`: writes the tokens' rows into the cache, and returns what
  // o_proj reads, f32 [tokens, n_heads * v_dim], valid until the next call.
  Matrix attend(const Layer& layer, const Matrix& in, const Pass& pass);

 private:
  void make_query(const Layer& layer, const Matrix& in, const Matrix& q, bool absorbed, const Pass& pass);
  Matrix attend_absorbed(const Layer& layer, const QkvBlock& block, const Pass& pass);
  bool heads_are_cheaper(const Layer& layer, const Pass& pass) const;
  Matrix attend_by_head(const Layer& layer, const Matrix& q, const Pass& pass);
  void make_room(const Layer& layer, const Pass& pass);
  void make_heads(const Layer& layer, int64_t first_head, const Pass& pass);

  Backend& backend_;
  int64_t workspace_;
  int64_t q_rank_ = 0, n_heads_ = 0, head_size_ = 0;  // of the layer that has most of each
  int64_t max_tokens_ = 0;
  // For so many tokens: the row that queries are made of, a part of each head's query or its values, and
  // which head a row of [tokens * n_heads] belongs to.
  Buffer q_row_, heads_, head_ids_;
  // Keys and values of some heads, made for one layer and step.
  struct MadeHeads {
    int64_t n_heads = 0, n_rows = 0;  // how many positions are made at a time
    KvGeometry geometry;              // one layer
    Buffer pages, rows, k, v, head_ids;
    std::vector<void*> tables;
    std::vector<StepSequence> sequences;  // the step's, with these pages
  } made_;
};

}  // namespace lariat
