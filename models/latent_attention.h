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
  LatentAttention(Backend& backend, int64_t workspace) : backend_(backend), workspace_(workspace) {}

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
  Buffer head_ids_;  // which head a row of [tokens * n_heads] belongs to
  // Keys and values of some heads, made for one layer and step.
  struct HeadCache {
    int64_t n_heads = 0, n_rows = 0;  // how many positions are made at a time
    KvGeometry geometry;              // one layer
    Buffer pages, rows, k, v, head_ids;
    std::vector<void*> tables;
    std::vector<StepSequence> sequences;  // the step's, with these pages
  } head_cache_;
};

}  // namespace lariat
