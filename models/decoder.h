#pragma once
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "models/latent_attention.h"

namespace lariat {

// Keys that tokens see with their queries turned by a table of its own, as in KeyRange: 0 is the table of the
// keys, others stand behind those of the model's RoPEs. With second_keys above 0 these are keys that are
// stored again, turned by that table, which is one for all ranges.
struct SeenKeys {
  KeyEdge begin, end;
  size_t table = 0, second_keys = 0;
};
bool operator==(const SeenKeys& a, const SeenKeys& b);
// Sequences of a step, one behind the other, that see alike; without keys: all up to the token's own, or the
// layer's window of them.
struct SeenAlike {
  std::span<const SeenKeys> keys;
  size_t n_sequences = 0;
};
// The table of the second keys among `seen`; 0: there are none.
size_t second_keys_of(std::span<const SeenKeys> seen);

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
  // tables of what is seen, never fewer than before. seen: what all of the sequences see. Returns the final
  // hidden states after the last norm, [tokens, hidden] as the head reads them, valid until the next call.
  Matrix forward(const Step& step, std::span<const std::vector<SequenceRope>> ropes,
                 std::span<const SeenAlike> seen);

  // Logits of some rows of forward()'s result: f32 [rows, vocab], valid until the next call.
  Matrix logits(const Matrix& hidden_rows);

 private:
  void run(size_t index, const Pass& pass);
  Matrix attention(const Layer& layer, const Matrix& in, const Pass& pass);
  using Ranges = std::array<KeyRange, Backend::kMaxRanges>;
  std::span<const KeyRange> ranges_of(std::span<const SeenKeys> keys, const AttentionSpec& attention,
                                      const Activations& a, int64_t first_row, int64_t rows,
                                      Ranges& memory) const;

  const ModelSpec& spec_;
  const Weights& weights_;
  std::span<const SeenAlike> seen_;  // in this step
  Backend& backend_;
  std::vector<Layer> layers_;
  ActivationMemory activations_;
  std::optional<LatentAttention> latent_;
  Buffer logits_;
  Buffer slopes_;  // of ALiBi
  TraceFn trace_;
};

}  // namespace lariat
