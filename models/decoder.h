#pragma once
#include <optional>
#include <span>
#include <vector>

#include "models/latent_attention.h"
#include "models/positions/attention_groups.h"

namespace lariat {

// Forward pass of a ModelSpec's decoder on a backend.
class Decoder {
 public:
  // ropes: the spec's, scaled for the session. chunk: expected tokens of a long step. latent_workspace: see
  // LatentAttention. References must outlive the decoder.
  Decoder(const ModelSpec& spec, const Weights& weights, std::span<const RopeScaling> ropes,
          const KvGeometry& geometry, Backend& backend, int64_t chunk, int64_t latent_workspace);

  // Sets the callback for layer results; empty: tracing is off.
  void observe(TraceFn trace) { trace_ = std::move(trace); }

  // Runs a step's tokens (ids in [0, vocab_size)); writes keys and values to free positions of the sequences'
  // pages. ropes: per RoPE, each sequence's frequencies, then tables of further visible ranges; never fewer
  // than before. Returns states after the last norm, [tokens, hidden] in the head's dtype, valid until the
  // next call.
  Matrix forward(const Step& step, std::span<const std::vector<SequenceRope>> ropes,
                 std::span<const VisibleGroup> visible);

  // Returns logits of rows of forward()'s result: f32 [rows, vocab], valid until the next call.
  Matrix logits(const Matrix& hidden_rows);

 private:
  void run(size_t index, const Pass& pass);
  Matrix attention(const Layer& layer, const Matrix& in, const Pass& pass);

  const ModelSpec& spec_;
  const Weights& weights_;
  std::span<const VisibleGroup> visible_;
  Backend& backend_;
  std::vector<Layer> layers_;
  ActivationMemory activations_;
  AttentionGroups groups_;
  std::optional<LatentAttention> latent_;
  Buffer logits_;
  Buffer slopes_;
  TraceFn trace_;
};

}  // namespace lariat
