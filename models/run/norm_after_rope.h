#pragma once
#include "models/load/weights.h"
#include "models/spec/spec.h"

namespace lariat {

// RMSNorm of q and k after RoPE (Hunyuan), with cached keys that stay pure rotations. A rotation keeps a
// head's mean square, so both are normalised before it, with a weight of ones. Their weights would not
// commute with it: q_weight, their product, multiplies q after its rotation (AttentionParams).
class NormAfterRope {
 public:
  NormAfterRope(const ModelSpec& spec, const Weights& weights, Backend& backend);

  void replace_norms(QkvEpilogue& epilogue) const;
  Matrix q_weight(size_t layer) const;  // empty in other models

 private:
  Buffer memory_;
  Matrix factors_;  // ones, then a row per layer
};

}  // namespace lariat
