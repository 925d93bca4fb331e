#pragma once
#include <optional>
#include <span>
#include <vector>

#include "models/run/attention_groups.h"
#include "models/run/latent_attention.h"
#include "models/run/norm_after_rope.h"

namespace lariat {

// Forward pass of a ModelSpec's decoder on a backend.
class Decoder {
 public:
  // ropes: RoPEs of the spec, scaled for the session. geometry: layout of a cache page. chunk: expected
  // tokens of a long step. latent_workspace: see LatentAttention. ranks: the processes of a divided model, in
  // host memory; all make the same calls. All references must outlive the decoder.
  Decoder(const ModelSpec& spec, const Weights& weights, std::span<const RopeScaling> ropes,
          const KvGeometry& geometry, Backend& backend, int64_t chunk, int64_t latent_workspace,
          const Split& split = {}, Communicator* ranks = nullptr);

  // Sets the callback for layer results; empty: tracing is off.
  void observe(TraceFn trace) { trace_ = std::move(trace); }

  // Runs a step's tokens (ids in [0, vocab_size)); writes keys and values to free positions of the sequences'
  // pages. ropes: per RoPE, each sequence's frequencies, then tables of further visible ranges; never fewer
  // than before. Returns states after the last norm, [tokens, hidden] in the head's dtype, valid until the
  // next call.
  Matrix forward(const Step& step, std::span<const std::vector<SequenceRope>> ropes,
                 std::span<const VisibleGroup> visible);

  // Logits of rows of forward()'s result: f32 [rows, vocab], valid until the next call; on other ranks than 0
  // empty.
  Matrix logits(const Matrix& hidden_rows);

 private:
  void add_positions(const Step& step, const Activations& a);
  void run(size_t index, const Pass& pass);
  Matrix attention(const Layer& layer, const Matrix& in, const Pass& pass);
  Matrix room_for(int64_t rows, int64_t cols, Buffer& memory);  // f32

  const ModelSpec& spec_;
  const Weights& weights_;
  Backend& backend_;
  std::vector<Layer> layers_;
  ActivationMemory activations_;
  AttentionGroups groups_;
  NormAfterRope norm_after_rope_;
  std::optional<LatentAttention> latent_;
  const Split split_;
  Communicator* const ranks_;
  std::optional<DividedCache> cache_;
  Buffer logits_, own_logits_;      // of the whole vocabulary; of a rank's part
  Buffer slopes_;                   // ALiBi slopes
  std::vector<int32_t> positions_;  // of a step
  TraceFn trace_;
};

}  // namespace lariat
