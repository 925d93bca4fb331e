#include "models/decoder.h"

#include <algorithm>

namespace lariat {
namespace {

// Tokens of a step whose memory is fixed.
constexpr int64_t kFewTokens = 8;

Matrix f32(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::kF32, rows, cols};
}

int64_t q_size(const LayerSpec& layer) { return layer.attention.n_heads * layer.attention.head_dim; }
int64_t kv_size(const LayerSpec& layer) { return layer.attention.n_kv_heads * layer.attention.head_dim; }
int64_t inner_size(const LayerSpec& layer) { return layer.feed_forward.intermediate_size; }

std::string prefix(size_t layer) { return "layers." + std::to_string(layer) + "."; }

}  // namespace

void Step::clear() {
  tokens.clear();
  sequences.clear();
  frequencies.clear();
}

Decoder::Decoder(const ModelSpec& spec, const Weights& weights, const RopeScaling& rope,
                 const KvGeometry& geometry, Backend& backend, DType compute)
    : spec_(spec), weights_(weights), rope_(rope), geometry_(geometry), backend_(backend), compute_(compute) {
  grow(few_, kFewTokens);
}

void Decoder::grow(Workspace& memory, int64_t rows) {
  if (rows <= memory.rows) return;
  memory = Workspace();  // the old memory goes first: the two never exist together
  const auto widest = [&](int64_t (*size)(const LayerSpec&)) {
    int64_t largest = 0;
    for (const LayerSpec& layer : spec_.layers) largest = std::max(largest, size(layer));
    return largest;
  };
  const int64_t hidden = spec_.hidden_size, pairs = rope_.rotary_dim / 2;
  const std::pair<Buffer*, int64_t> activations[] = {{&memory.residual, hidden},
                                                     {&memory.normed, hidden},
                                                     {&memory.q, widest(q_size)},
                                                     {&memory.k, widest(kv_size)},
                                                     {&memory.v, widest(kv_size)},
                                                     {&memory.attended, widest(q_size)},
                                                     {&memory.gate, widest(inner_size)},
                                                     {&memory.up, widest(inner_size)},
                                                     {&memory.cos, pairs},
                                                     {&memory.sin, pairs},
                                                     {&memory.q_scale, 1}};
  for (const auto& [buffer, cols] : activations) {
    *buffer = backend_.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
  }
  memory.rows = rows;
}

// Points the views of a step at its memory.
void Decoder::use(Workspace& memory, int64_t n_tokens) {
  current_ = &memory;
  n_tokens_ = n_tokens;
  residual_ = f32(memory.residual, n_tokens, spec_.hidden_size);
  normed_ = f32(memory.normed, n_tokens, spec_.hidden_size);
  const int64_t pairs = rope_.rotary_dim / 2;
  table_ = {f32(memory.cos, n_tokens, pairs), f32(memory.sin, n_tokens, pairs),
            f32(memory.q_scale, n_tokens, 1), rope_.rotary_dim, rope_.interleaved};
}

Matrix Decoder::forward(const Step& step) {
  const auto n_tokens = static_cast<int64_t>(step.tokens.size());
  Workspace& memory = n_tokens <= kFewTokens ? few_ : many_;
  grow(memory, n_tokens);
  use(memory, n_tokens);
  backend_.begin_step(step.sequences);
  backend_.rope_table(step.frequencies, table_);
  backend_.embed(step.tokens, weights_.embed, residual_);

  backend_.rms_norm(residual_, weights_.layers[0].attention_norm, spec_.norm_eps, normed_);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    attention_block(i, step);
    if (trace_) trace_matrix(backend_, trace_, prefix(i) + "attention", normed_);
    backend_.add_rms_norm(residual_, normed_, weights_.layers[i].ffn_norm, spec_.norm_eps, normed_);
    ffn_block(i);
    if (trace_) trace_matrix(backend_, trace_, prefix(i) + "feed_forward", normed_);
    // The norm that follows is the next layer's, or the model's last.
    const bool last = i + 1 == spec_.layers.size();
    const Matrix& norm = last ? weights_.norm : weights_.layers[i + 1].attention_norm;
    backend_.add_rms_norm(residual_, normed_, norm, spec_.norm_eps, normed_);
    if (trace_) trace_matrix(backend_, trace_, prefix(i) + "output", residual_);
  }
  return normed_;
}

// normed_ in, the attention's contribution to the residual out (in normed_).
void Decoder::attention_block(size_t index, const Step& step) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const Matrix q = f32(current_->q, n_tokens_, q_size(layer)),
               attended = f32(current_->attended, n_tokens_, q.cols);
  const Matrix k = f32(current_->k, n_tokens_, kv_size(layer)),
               v = f32(current_->v, n_tokens_, kv_size(layer));
  backend_.matmul(normed_, weights.q_proj, {}, compute_, q);
  backend_.matmul(normed_, weights.k_proj, {}, compute_, k);
  backend_.matmul(normed_, weights.v_proj, {}, compute_, v);
  const KvLayer& cache = geometry_.layers[index];
  backend_.qkv_to_cache(q, k, v, weights.qkv, table_, cache);
  const AttentionParams params{layer.attention.n_heads, layer.attention.scale,
                               layer.attention.sliding_window};
  if (trace_) trace_attention(backend_, trace_, prefix(index), {q, table_, step.sequences, cache, params});
  backend_.attention(q, table_, cache, params, attended);
  backend_.matmul(attended, weights.o_proj, weights.o_bias, compute_, normed_);
}

// normed_ in, the feed-forward's contribution to the residual out (in normed_).
void Decoder::ffn_block(size_t index) {
  const LayerWeights& weights = weights_.layers[index];
  const int64_t inner = inner_size(spec_.layers[index]);
  const Matrix gate = f32(current_->gate, n_tokens_, inner), up = f32(current_->up, n_tokens_, inner);
  backend_.matmul(normed_, weights.gate_proj, weights.gate_bias, compute_, gate);
  backend_.matmul(normed_, weights.up_proj, weights.up_bias, compute_, up);
  backend_.swiglu(gate, up);
  backend_.matmul(gate, weights.down_proj, weights.down_bias, compute_, normed_);
}

Matrix Decoder::logits(const Matrix& hidden_rows) {
  Workspace& memory = hidden_rows.rows <= kFewTokens ? few_ : many_;
  if (memory.logit_rows < hidden_rows.rows) {
    const int64_t rows = std::max(hidden_rows.rows, std::min(memory.rows, kFewTokens));
    memory.logits = Buffer();
    memory.logits = backend_.allocate(static_cast<size_t>(rows * spec_.vocab_size) * sizeof(float));
    memory.logit_rows = rows;
  }
  const Matrix out = f32(memory.logits, hidden_rows.rows, spec_.vocab_size);
  backend_.matmul(hidden_rows, weights_.head, {}, compute_, out);
  return out;
}

}  // namespace lariat
