#pragma once
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/config.h"
#include "models/weights.h"

namespace lariat {

// The new tokens of one sequence in a forward pass.
struct SequenceChunk {
  std::span<const KvLayer> layers;  // its cache, one per layer, with room for the new positions
  int64_t first_position = 0;
  int64_t n_tokens = 0;
  const RopeFrequencies* clock = nullptr;  // what its cached keys are on
};

// The forward pass of a LLaMA-style decoder over a backend. Owns the activations, which grow to the largest
// batch seen and are reused; allocates nothing otherwise.
class Decoder {
 public:
  // compute: precision of the matrix products' inputs, see Backend::matmul.
  Decoder(const ModelSpec& config, const Weights& weights, Backend& backend, DType compute);

  // Runs the tokens of all chunks, concatenated in order, through every layer, writing their keys and values
  // into the chunks' caches. Returns the final hidden states after the last norm, f32 [tokens.size(),
  // hidden], valid until the next call. Token ids must be in [0, vocab_size).
  Matrix forward(std::span<const int32_t> tokens, std::span<const SequenceChunk> chunks);

  // forward() of one token per chunk and the logits of all of them, f32 [chunks.size(), vocab], valid until
  // the next call; as a step of the backend, which may have recorded an earlier one (Backend::run_step).
  Matrix decode(std::span<const int32_t> tokens, std::span<const SequenceChunk> chunks);

  // Logits of some rows of forward()'s result: f32 [rows, vocab], valid until the next call.
  Matrix logits(const Matrix& hidden_rows);

 private:
  void grow(int64_t n_tokens);
  void prepare_rope(std::span<const SequenceChunk> chunks);
  void embed(std::span<const int32_t> tokens, std::span<const SequenceChunk> chunks);
  void run_layers(std::span<const SequenceChunk> chunks);
  Matrix logits_memory(int64_t rows);
  void attention_block(const LayerWeights& layer, int64_t layer_index, std::span<const SequenceChunk> chunks);
  void mlp_block(const LayerWeights& layer);

  const ModelSpec& config_;
  const Weights& weights_;
  Backend& backend_;
  DType compute_;

  // Activations of the current batch, views into buffers_.
  int64_t capacity_ = 0, n_tokens_ = 0;
  std::vector<Buffer> buffers_;
  Matrix residual_, normed_, q_, k_, v_, attended_, gate_, up_, cos_, sin_;
  std::vector<RopeTable> rope_;  // one per chunk
  // Of a DecodeStep.
  std::vector<int64_t> positions_;
  std::vector<std::span<const KvLayer>> caches_;
  std::vector<uint64_t> constants_;
  Buffer logits_buffer_;
  uint64_t memory_id_ = 0;  // of the activations and logits as they are now, unlike any other decoder's
};

}  // namespace lariat
