#pragma once
#include <vector>

#include "models/run/layer.h"

namespace lariat {

// Latent attention (LatentSpec). Per-head products run as expert products: the expert of a row is its head.
class LatentAttention {
 public:
  // workspace: limit in bytes of a long step's expanded keys and values. As many heads as fit are expanded at
  // a time; if none fits, attention stays absorbed.
  LatentAttention(Backend& backend, int64_t workspace) : backend_(backend), workspace_(workspace) {}

  // Writes the tokens' rows to the cache and returns o_proj's input, f32 [tokens, n_heads * v_dim], valid
  // until the next call.
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
  Buffer head_ids_;  // head of each row of [tokens * n_heads]
  // Expanded keys and values, for one layer and step.
  struct HeadCache {
    int64_t n_heads = 0, n_rows = 0;  // n_rows: positions expanded at a time
    KvGeometry geometry;
    Buffer pages, rows, k, v, head_ids;
    std::vector<void*> tables;
    std::vector<StepSequence> sequences;
  } head_cache_;
};

}  // namespace lariat
