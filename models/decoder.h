#pragma once
#include <optional>
#include <span>
#include <vector>

#include "models/latent_attention.h"
#include "models/positions/attention_groups.h"

namespace lariat {

// The forward pass of a decoder, as its ModelSpec describes it, over a backend.
class Decoder {
 public:
  // ropes: those of the spec, stretched as the session has it. geometry: what a page of the cache holds.
  // chunk: tokens of a long step, as far as is known. latent_workspace: see LatentAttention. All that is
  // passed by reference must outlive the decoder.
  Decoder(const ModelSpec& spec, const Weights& weights, std::span<const RopeScaling> ropes,
          const KvGeometry& geometry, Backend& backend, int64_t chunk, int64_t latent_workspace);

  // From now on, every layer shows what it makes (empty: no longer).
  void observe(TraceFn trace) { trace_ = std::move(trace); }

  // Runs a step's tokens (ids in [0, vocab_size)) through every layer, writing their keys and values into the
  // sequences' pages, which have room for the new positions. ropes: for each RoPE of the model the
  // frequencies of each sequence, which its cached keys are rotated with, and behind them those of further
  // tables of visible ranges, never fewer than before. visible: the groups of all sequences. Returns the
  // final hidden states after the last norm, [tokens, hidden] as the head reads them, valid until the next
  // call.
  Matrix forward(const Step& step, std::span<const std::vector<SequenceRope>> ropes,
                 std::span<const VisibleGroup> visible);

  // Logits of some rows of forward()'s result: f32 [rows, vocab], valid until the next call.
  Matrix logits(const Matrix& hidden_rows);

 private:
  void run(size_t index, const Pass& pass);
  Matrix attention(const Layer& layer, const Matrix& in, const Pass& pass);

  const ModelSpec& spec_;
  const Weights& weights_;
  std::span<const VisibleGroup> visible_;  // in this step
  Backend& backend_;
  std::vector<Layer> layers_;
  ActivationMemory activations_;
  AttentionGroups groups_;
  std::optional<LatentAttention> latent_;
  Buffer logits_;
  Buffer slopes_;  // of ALiBi
  TraceFn trace_;
};

}  // namespace lariat
