#pragma once
#include <span>
#include <vector>

#include "engine/runtime/sequence.h"
#include "models/run/decoder.h"

namespace lariat {

// Assembles one forward pass. Steps reuse its memory.
class StepBuilder {
 public:
  // ropes: the model's, the first with the session's scaling; must outlive the builder.
  StepBuilder(const ModelSpec& spec, std::span<const RopeScaling> ropes);

  // Reserves tables for every later step.
  void make_room(const PositionMethod& method);
  void clear();
  // The cache must have pages and RoPE frequencies for the tokens, which start at index `first`.
  void add(Sequence& sequence, int64_t first, std::span<const int32_t> tokens);
  // Calls forward(step, ropes, visible), as Decoder::forward.
  template <class Forward>
  Matrix run(const Forward& forward) const {
    return forward(Step{tokens_, sequences_}, std::span(ropes_), std::span(visible_));
  }

 private:
  std::span<const float> query_scales(const Sequence& sequence, int64_t first, int64_t n_tokens);
  SequenceRope with_scales(const RopeFrequencies& frequencies, std::span<const float> query_scales) const;

  const ModelSpec& spec_;
  size_t n_model_ropes_;
  std::vector<RopeFrequencies> fixed_frequencies_;  // of the model's RoPEs after the first
  std::vector<int32_t> tokens_;
  std::vector<StepSequence> sequences_;
  // [table][sequence]: first the model's RoPEs, then tables of position methods.
  std::vector<std::vector<SequenceRope>> ropes_;
  std::vector<VisibleGroup> visible_;
  std::vector<std::vector<float>> query_scales_;  // per sequence
  std::vector<std::vector<double>> positions_;    // per sequence and table
  std::vector<PositionMethod::FarRope> far_;      // per sequence
};

}  // namespace lariat
