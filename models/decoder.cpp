#include "models/decoder.h"

#include <atomic>
#include <bit>
#include <cmath>

namespace lariat {
namespace {

uint64_t next_memory_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Decoder::Decoder(const ModelSpec& config, const Weights& weights, Backend& backend, DType compute)
    : config_(config), weights_(weights), backend_(backend), compute_(compute) {}

void Decoder::grow(int64_t n_tokens) {
  const int64_t q_size = config_.n_heads * config_.head_dim, kv_size = config_.n_kv_heads * config_.head_dim;
  const std::pair<Matrix*, int64_t> activations[] = {{&residual_, config_.hidden_size},
                                                     {&normed_, config_.hidden_size},
                                                     {&q_, q_size},
                                                     {&k_, kv_size},
                                                     {&v_, kv_size},
                                                     {&attended_, q_size},
                                                     {&gate_, config_.intermediate_size},
                                                     {&up_, config_.intermediate_size},
                                                     {&cos_, config_.rope.rotary_dim / 2},
                                                     {&sin_, config_.rope.rotary_dim / 2}};
  if (n_tokens > capacity_) {
    buffers_.clear();
    capacity_ = 0;
    for (const auto& [matrix, cols] : activations) {
      buffers_.push_back(backend_.allocate(static_cast<size_t>(n_tokens * cols) * sizeof(float)));
    }
    capacity_ = n_tokens;
    memory_id_ = next_memory_id();
  }
  n_tokens_ = n_tokens;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    *activations[i].first = Matrix(buffers_[i].data(), DType::kF32, n_tokens, activations[i].second);
  }
}

void Decoder::prepare_rope(std::span<const SequenceChunk> chunks) {
  rope_.clear();
  int64_t row = 0;
  for (const auto& chunk : chunks) {
    RopeTable table;
    table.cos = cos_.row_range(row, chunk.n_tokens);
    table.sin = sin_.row_range(row, chunk.n_tokens);
    table.rotary_dim = config_.rope.rotary_dim;
    table.interleaved = config_.rope.interleaved;
    // transformers multiplies cos and sin of q and of k by the attention factor; keys here are pure rotations
    // (I2), so q carries both.
    table.q_scale = static_cast<float>(chunk.clock->attention_factor * chunk.clock->attention_factor);
    backend_.rope_table(chunk.first_position, chunk.clock->inv_freq, table);
    rope_.push_back(table);
    row += chunk.n_tokens;
  }
}

Matrix Decoder::forward(std::span<const int32_t> tokens, std::span<const SequenceChunk> chunks) {
  embed(tokens, chunks);
  run_layers(chunks);
  return normed_;
}

Matrix Decoder::decode(std::span<const int32_t> tokens, std::span<const SequenceChunk> chunks) {
  const Matrix out = logits_memory(static_cast<int64_t>(tokens.size()));
  embed(tokens, chunks);
  positions_.clear();
  caches_.clear();
  constants_.assign(1, memory_id_);
  for (size_t i = 0; i < chunks.size(); ++i) {
    positions_.push_back(chunks[i].first_position);
    caches_.push_back(chunks[i].layers);
    rope_[i].step_row = static_cast<int64_t>(i);
    constants_.push_back(std::bit_cast<uint32_t>(rope_[i].q_scale));
  }
  const auto ops = [&] {
    run_layers(chunks);
    backend_.matmul(normed_, weights_.head, {}, compute_, out);
  };
  backend_.run_step({positions_, caches_, constants_}, StepOps(ops));
  return out;
}

// The activations at the beginning of the first layer, and the angles of all of them.
void Decoder::embed(std::span<const int32_t> tokens, std::span<const SequenceChunk> chunks) {
  grow(static_cast<int64_t>(tokens.size()));
  prepare_rope(chunks);
  backend_.embed(tokens, weights_.embed, residual_);
}

// residual_ in, normed_ out.
void Decoder::run_layers(std::span<const SequenceChunk> chunks) {
  backend_.rms_norm(residual_, weights_.layers[0].input_norm, config_.rms_norm_eps, normed_);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    attention_block(layer, static_cast<int64_t>(i), chunks);
    backend_.add_rms_norm(residual_, normed_, layer.ffn_norm, config_.rms_norm_eps, normed_);
    mlp_block(layer);
    // The norm that follows is the next layer's, or the model's last.
    const bool last = i + 1 == weights_.layers.size();
    const Matrix& norm = last ? weights_.norm : weights_.layers[i + 1].input_norm;
    backend_.add_rms_norm(residual_, normed_, norm, config_.rms_norm_eps, normed_);
  }
}

// normed_ in, the attention's contribution to the residual out (in normed_).
void Decoder::attention_block(const LayerWeights& layer, int64_t layer_index,
                              std::span<const SequenceChunk> chunks) {
  backend_.matmul(normed_, layer.q_proj, {}, compute_, q_);
  backend_.matmul(normed_, layer.k_proj, {}, compute_, k_);
  backend_.matmul(normed_, layer.v_proj, {}, compute_, v_);
  const AttentionParams shape{config_.n_heads,
                              static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
                              config_.sliding_window[static_cast<size_t>(layer_index)]};
  int64_t row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk& chunk = chunks[i];
    const int64_t n = chunk.n_tokens;
    const KvLayer& cache = chunk.layers[static_cast<size_t>(layer_index)];
    const Matrix q = q_.row_range(row, n);
    backend_.qkv_to_cache(q, k_.row_range(row, n), v_.row_range(row, n), layer.qkv, rope_[i], cache,
                          chunk.first_position);
    backend_.attention(q, rope_[i], cache, chunk.first_position, shape, attended_.row_range(row, n));
    row += n;
  }
  backend_.matmul(attended_, layer.o_proj, layer.o_bias, compute_, normed_);
}

// normed_ in, the MLP's contribution to the residual out (in normed_).
void Decoder::mlp_block(const LayerWeights& layer) {
  backend_.matmul(normed_, layer.gate_proj, layer.gate_bias, compute_, gate_);
  backend_.matmul(normed_, layer.up_proj, layer.up_bias, compute_, up_);
  backend_.swiglu(gate_, up_);
  backend_.matmul(gate_, layer.down_proj, layer.down_bias, compute_, normed_);
}

Matrix Decoder::logits_memory(int64_t rows) {
  const size_t bytes = static_cast<size_t>(rows * config_.vocab_size) * sizeof(float);
  if (logits_buffer_.bytes() < bytes) {
    logits_buffer_ = Buffer();
    logits_buffer_ = backend_.allocate(bytes);
    memory_id_ = next_memory_id();
  }
  return {logits_buffer_.data(), DType::kF32, rows, config_.vocab_size};
}

Matrix Decoder::logits(const Matrix& hidden_rows) {
  const Matrix out = logits_memory(hidden_rows.rows);
  backend_.matmul(hidden_rows, weights_.head, {}, compute_, out);
  return out;
}

}  // namespace lariat
