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
  local_frequencies.clear();
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
  const int64_t hidden = spec_.hidden_size;
  const std::pair<Buffer*, int64_t> activations[] = {
      {&memory.residual, hidden},         {&memory.normed, hidden},        {&memory.q, widest(q_size)},
      {&memory.k, widest(kv_size)},       {&memory.v, widest(kv_size)},    {&memory.attended, widest(q_size)},
      {&memory.gate, widest(inner_size)}, {&memory.up, widest(inner_size)}};
  const auto allocate = [&](Buffer& buffer, int64_t cols) {
    buffer = backend_.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
  };
  for (const auto& [buffer, cols] : activations) allocate(*buffer, cols);
  const RopeScaling* const ropes[] = {&rope_, spec_.local_rope ? &*spec_.local_rope : nullptr};
  for (size_t i = 0; i < memory.angles.size(); ++i) {
    if (ropes[i] == nullptr) continue;
    allocate(memory.angles[i].cos, ropes[i]->rotary_dim / 2);
    allocate(memory.angles[i].sin, ropes[i]->rotary_dim / 2);
    allocate(memory.angles[i].q_scale, 1);
  }
  memory.rows = rows;
}

// Points the views of a step at its memory.
void Decoder::use(Workspace& memory, int64_t n_tokens) {
  current_ = &memory;
  n_tokens_ = n_tokens;
  residual_ = f32(memory.residual, n_tokens, spec_.hidden_size);
  normed_ = f32(memory.normed, n_tokens, spec_.hidden_size);
}

// What a layer's q and k are rotated with; of no RoPE, a table of no pairs.
RopeTable Decoder::table_of(LayerRope rope) const {
  const bool local = rope == LayerRope::kLocal;
  const RopeScaling& scaling = local ? *spec_.local_rope : rope_;
  const Workspace::Angles& angles = current_->angles[local ? 1 : 0];
  const int64_t rotary_dim = rope == LayerRope::kNone ? 0 : scaling.rotary_dim;
  return {f32(angles.cos, n_tokens_, rotary_dim / 2), f32(angles.sin, n_tokens_, rotary_dim / 2),
          f32(angles.q_scale, n_tokens_, 1), rotary_dim, scaling.interleaved};
}

Matrix Decoder::forward(const Step& step) {
  const auto n_tokens = static_cast<int64_t>(step.tokens.size());
  Workspace& memory = n_tokens <= kFewTokens ? few_ : many_;
  grow(memory, n_tokens);
  use(memory, n_tokens);
  backend_.begin_step(step.sequences);
  backend_.rope_table(step.frequencies, table_of(LayerRope::kGlobal));
  if (spec_.local_rope) backend_.rope_table(step.local_frequencies, table_of(LayerRope::kLocal));
  backend_.embed(step.tokens, weights_.embed, weights_.embedding_multiplier, residual_);

  const Matrix& first = weights_.layers[0].attention_norm;
  if (first) backend_.rms_norm(residual_, first, spec_.norm_eps, normed_);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    attention_block(i, step);
    if (trace_) trace_matrix(backend_, trace_, prefix(i) + "attention", normed_);
    add_to_residual(spec_.layers[i], layer.attention_post_norm, layer.ffn_norm);
    ffn_block(i);
    if (trace_) trace_matrix(backend_, trace_, prefix(i) + "feed_forward", normed_);
    const bool last = i + 1 == spec_.layers.size();
    add_to_residual(spec_.layers[i], layer.ffn_post_norm,
                    last ? weights_.norm : weights_.layers[i + 1].attention_norm);
    if (trace_) trace_matrix(backend_, trace_, prefix(i) + "output", residual_);
  }
  return normed_;
}

// A block's contribution (normed_) joins the residual; the norm in front of what follows, the next block or
// the model's end, goes along.
void Decoder::add_to_residual(const LayerSpec& layer, const Matrix& post_norm, const Matrix& next_norm) {
  if (post_norm) backend_.rms_norm(normed_, post_norm, spec_.norm_eps, normed_);
  backend_.add_rms_norm(residual_, normed_, layer.residual_multiplier, next_norm, spec_.norm_eps, normed_);
}

// The residual, normalised where the layer has a norm in front, in; the attention's contribution out (in
// normed_).
void Decoder::attention_block(size_t index, const Step& step) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const Matrix q = f32(current_->q, n_tokens_, q_size(layer)),
               attended = f32(current_->attended, n_tokens_, q.cols);
  const Matrix k = f32(current_->k, n_tokens_, kv_size(layer)),
               v = f32(current_->v, n_tokens_, kv_size(layer));
  const Matrix& in = layer.norm_before ? normed_ : residual_;
  backend_.matmul(in, weights.q_proj, {}, compute_, q);
  backend_.matmul(in, weights.k_proj, {}, compute_, k);
  backend_.matmul(in, weights.v_proj, {}, compute_, v);
  if (weights.q_norm) backend_.rms_norm(q, weights.q_norm, spec_.norm_eps, q);
  if (weights.k_norm) backend_.rms_norm(k, weights.k_norm, spec_.norm_eps, k);
  const KvLayer& cache = geometry_.layers[index];
  const RopeTable table = table_of(layer.attention.rope);
  backend_.qkv_to_cache(q, k, v, weights.qkv, table, cache);
  const AttentionParams params{layer.attention.n_heads, layer.attention.scale, layer.attention.sliding_window,
                               layer.attention.softcap};
  if (trace_) trace_attention(backend_, trace_, prefix(index), {q, table, step.sequences, cache, params});
  backend_.attention(q, table, cache, params, attended);
  backend_.matmul(attended, weights.o_proj, weights.o_bias, compute_, normed_);
}

// The same for the feed-forward.
void Decoder::ffn_block(size_t index) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const int64_t inner = inner_size(layer);
  const Matrix& in = layer.norm_before ? normed_ : residual_;
  const Matrix gate = f32(current_->gate, n_tokens_, inner), up = f32(current_->up, n_tokens_, inner);
  backend_.matmul(in, weights.gate_proj, weights.gate_bias, compute_, gate);
  backend_.matmul(in, weights.up_proj, weights.up_bias, compute_, up);
  backend_.glu(gate, up, layer.feed_forward.activation);
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
  if (spec_.logits_multiplier != 1.0F || spec_.logits_softcap > 0.0F)
    backend_.soft_cap(out, spec_.logits_multiplier, spec_.logits_softcap);
  return out;
}

}  // namespace lariat
