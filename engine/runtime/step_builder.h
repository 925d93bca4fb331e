#pragma once
#include <span>
#include <vector>

#include "engine/runtime/sequence.h"
#include "models/decoder.h"

namespace lariat {

// Puts one forward pass together, sequence by sequence. Its memory serves the next step too.
class StepBuilder {
 public:
  // ropes: the RoPEs of the model, the first with the session's scaling; must outlive the builder.
  StepBuilder(const ModelSpec& spec, std::span<const RopeScaling> ropes);

  // Every later step has room for this method's tables.
  void make_room(const PositionMethod& method);
  void clear();
  // Appends new tokens of a sequence, whose cache has pages and RoPE frequencies for them.
  void add(Sequence& sequence, std::span<const int32_t> tokens);
  Matrix run(Decoder& decoder) const { return decoder.forward({tokens_, sequences_}, ropes_, visible_); }

 private:
  std::span<const float> query_scales(const Sequence& sequence, int64_t n_tokens);
  SequenceRope with_scales(const RopeFrequencies& frequencies, std::span<const float> query_scales) const;

  const ModelSpec& spec_;
  size_t n_model_ropes_;
  std::vector<RopeFrequencies> fixed_frequencies_;  // of the model's other RoPEs
  std::vector<int32_t> tokens_;
  std::vector<StepSequence> sequences_;
  // RoPE frequencies and positions of each sequence, by RoPE of the model and then by further table of any
  // method so far.
  std::vector<std::vector<SequenceRope>> ropes_;
  std::vector<VisibleGroup> visible_;
  std::vector<std::vector<float>> query_scales_;  // of each sequence's tokens
  std::vector<std::vector<double>> positions_;    // of each sequence's tokens by each table of its method
  std::vector<PositionMethod::FarRope> far_;      // of each sequence
};

}  // namespace lariat
