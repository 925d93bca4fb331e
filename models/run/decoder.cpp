#include "models/run/decoder.h"

#include <algorithm>

namespace lariat {
namespace {

// Limit of the initial capacity in tokens.
constexpr int64_t kMostTokensAhead = 512;

// Adds a block's output (the product of x and w or, without x, a.normed) to the residual; writes the result's
// norm, if any, to `next`.
void add_to_residual(const Layer& layer, const char* block, const Matrix& x, const Weight& w,
                     const Norm& post_norm, const Norm& next_norm, const Matrix& next, const Pass& pass) {
  Backend& backend = pass.backend;
  const Activations& a = pass.activations;
  const float scale = layer.spec.residual_multiplier;
  if (x && !post_norm && !pass.trace && pass.ranks == nullptr)
    return backend.linear(x, w, Epilogue::add_to(a.residual, scale, next_norm), next);
  if (x) backend.linear(x, w, {}, a.normed);
  if (pass.ranks != nullptr)
    pass.ranks->all_reduce({a.normed.f32(), static_cast<size_t>(a.normed.rows * a.normed.cols)});
  if (pass.trace) trace_matrix(backend, pass.trace, layer.name + block, a.normed);
  if (post_norm) backend.norm(a.normed, post_norm, a.normed);
  backend.add_norm(a.residual, a.normed, scale, next_norm, next);
}

// Latent attention reads f32, as experts do.
Matrix attention_input(const Layer& layer, const Activations& a) {
  if (!layer.spec.norm_before) return a.residual;
  return layer.spec.attention.latent ? a.normed : as(a.normed, layer.weights.qkv.input);
}

// A parallel layer has separate memory. Router and experts read f32.
Matrix feed_forward_input(const Layer& layer, const Activations& a) {
  if (!layer.spec.norm_before) return a.residual;
  const Matrix& normed = layer.spec.parallel ? a.parallel : a.normed;
  return layer.spec.feed_forward.experts.n > 0 ? normed : as(normed, layer.weights.gate_up.input);
}

// Writes the outputs of each token's experts, one unweighted row per choice.
void experts(const Layer& layer, const Matrix& in, const Routing& routing, const Pass& pass) {
  Backend& backend = pass.backend;
  const Activations& a = pass.activations;
  const FeedForwardSpec& spec = layer.spec.feed_forward;
  const ExpertWeights& weights = layer.weights.experts;
  const Matrix logits = f32(a.router_logits, in.rows, spec.experts.n_logits());
  Router router = spec.experts.router;
  router.choice_bias = weights.choice_bias;
  backend.linear(in, weights.router, {}, logits);
  backend.route(logits.column_range(0, spec.experts.n), router, routing);
  const int64_t rows = in.rows * router.n_chosen, cols = spec.experts.intermediate_size;
  const Matrix gate = f32(a.block, rows, cols), up(gate.f32(rows), DType::kF32, rows, cols);
  backend.grouped_linear(in, weights.gate, routing, gate);
  backend.grouped_linear(in, weights.up, routing, up);
  backend.glu(gate, up, spec.activation, gate);
  backend.grouped_linear(gate, weights.down, routing, a.expert_outputs.row_range(0, rows));
}

Matrix inner_values(const Layer& layer, const Matrix& in, const Pass& pass) {
  const FeedForwardSpec& spec = layer.spec.feed_forward;
  const LayerWeights& weights = layer.weights;
  const Matrix values = f32(pass.activations.block, in.rows, spec.intermediate_size);
  if (spec.activation == Activation::kXielu) {
    pass.backend.linear(in, weights.gate_up, {}, values);
    pass.backend.xielu(values, layer.xielu);
    return values;
  }
  const Matrix inner = as(values, weights.down.input);
  pass.backend.linear(in, weights.gate_up, Epilogue::gated(spec.activation), inner);
  return inner;
}

// Returns the down projection's input; with experts {}, and the output is in a.normed, possibly `in`.
Matrix feed_forward(const Layer& layer, const Matrix& in, const Pass& pass) {
  const FeedForwardSpec& spec = layer.spec.feed_forward;
  if (spec.experts.n == 0) return inner_values(layer, in, pass);
  const Activations& a = pass.activations;
  const Routing routing = a.routing(spec.experts);
  experts(layer, in, routing, pass);
  const bool shared = spec.intermediate_size > 0;
  if (shared) pass.backend.linear(inner_values(layer, in, pass), layer.weights.down, {}, a.normed);
  const int64_t rows = in.rows * spec.experts.router.n_chosen;
  pass.backend.combine_experts(a.expert_outputs.row_range(0, rows), routing, shared, a.normed);
  return {};
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec, const Weights& weights, std::span<const RopeScaling> ropes,
                 const KvGeometry& geometry, Backend& backend, int64_t chunk, int64_t latent_workspace,
                 const Split& split, Communicator* ranks)
    : spec_(spec),
      weights_(weights),
      backend_(backend),
      activations_(spec, ropes, backend, std::clamp(chunk, backend.traits().steady_tokens, kMostTokensAhead)),
      groups_(spec),
      norm_after_rope_(spec, weights, backend),
      split_(split),
      ranks_(ranks) {
  Matrix slopes;
  if (const size_t bytes = spec.alibi_slopes.size() * sizeof(float); bytes > 0) {
    slopes_ = backend.allocate(bytes);
    backend.copy_in(slopes_.data(), spec.alibi_slopes.data(), bytes);
    slopes = f32(slopes_, 1, std::ssize(spec.alibi_slopes));
  }
  if (split.by_sequence) cache_.emplace(backend, split_, *ranks);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    layers_.push_back(
        {spec.layers[i],
         weights.layers[i],
         geometry.layers[i],
         {split.by_sequence ? heads_of(split.layers[i].heads) : attention.n_heads, attention.scale,
          attention.softcap, slopes, weights.layers[i].sinks, norm_after_rope_.q_weight(i)},
         "layers." + std::to_string(i) + ".",
         i,
         xielu_of(weights.layers[i].xielu, backend)});
    if (attention.latent && !latent_) latent_.emplace(backend, latent_workspace);
  }
}

Matrix Decoder::forward(const Step& step, std::span<const std::vector<SequenceRope>> ropes,
                        std::span<const VisibleGroup> visible) {
  const Activations& a = activations_.for_step(std::ssize(step.tokens), ropes.size());
  groups_.build(step, visible, a);
  for (size_t r = 0; spec_.has_rope() && r < ropes.size(); ++r)
    backend_.rope_table(step, ropes[r], a.ropes[r]);
  backend_.embed(step.tokens, weights_.embed, weights_.embedding_multiplier, a.residual);
  if (spec_.learned_positions) add_positions(step, a);
  if (spec_.embedding_norm) backend_.norm(a.residual, weights_.embedding_norm, a.residual);
  const Norm& first = layers_.front().weights.attention_norm;
  if (first) backend_.norm(a.residual, first, attention_input(layers_.front(), a));
  const Pass pass{backend_, step, a, groups_, trace_, split_, ranks_, cache_ ? &*cache_ : nullptr};
  for (size_t i = 0; i < layers_.size(); ++i) run(i, pass);
  return as(a.normed, weights_.head.input);
}

void Decoder::add_positions(const Step& step, const Activations& a) {
  positions_.clear();
  for (const auto& [first, n_tokens, pages] : step.sequences) {
    for (int64_t i = 0; i < n_tokens; ++i) positions_.push_back(static_cast<int32_t>(first + i));
  }
  backend_.embed(positions_, weights_.positions, 1.0F, a.normed);
  backend_.add_norm(a.residual, a.normed, 1.0F, {}, a.normed);
}

// Reads and writes the residual and its norm: attention_input(layer) or, after the last layer, a.normed.
void Decoder::run(size_t index, const Pass& pass) {
  const Activations& a = pass.activations;
  const Layer& layer = layers_[index];
  const LayerWeights& weights = layer.weights;
  const Layer* const next = index + 1 < layers_.size() ? &layers_[index + 1] : nullptr;
  const Matrix ffn_in = feed_forward_input(layer, a);
  if (layer.spec.parallel) backend_.norm(a.residual, weights.ffn_norm, ffn_in);
  const Matrix attended = attention(layer, attention_input(layer, a), pass);
  add_to_residual(layer, "attention", attended, weights.o, weights.attention_post_norm,
                  layer.spec.parallel ? Norm() : weights.ffn_norm, layer.spec.parallel ? a.normed : ffn_in,
                  pass);
  const Matrix inner = feed_forward(layer, ffn_in, pass);
  add_to_residual(layer, "feed_forward", inner, weights.down, weights.ffn_post_norm,
                  next != nullptr ? next->weights.attention_norm : weights_.norm,
                  next != nullptr ? attention_input(*next, a) : as(a.normed, weights_.head.input), pass);
  if (trace_) trace_matrix(backend_, trace_, layer.name + "output", a.residual);
}

// Returns the output projection's input. The caller may overwrite a.normed, possibly `in`.
Matrix Decoder::attention(const Layer& layer, const Matrix& in, const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  if (spec.latent) return latent_->attend(layer, in, pass);
  const LayerWeights& weights = layer.weights;
  const QkvBlock block = qkv_of(pass.activations, spec);
  backend_.linear(in, weights.qkv, {}, block.all);
  if (weights.q_norm) pass.norm_all_heads(layer, block.q, weights.q_norm, &LayerSplit::heads);
  if (weights.k_norm) pass.norm_all_heads(layer, block.k, weights.k_norm, &LayerSplit::kv_heads);
  QkvEpilogue epilogue = weights.qkv_epilogue;
  norm_after_rope_.replace_norms(epilogue);
  if (spec.rope >= 0) epilogue.second_rope = pass.groups.second_rope();
  DividedCache::KeysAndValues stored{block.k, block.v};
  if (cache_) stored = cache_->all_heads(layer.index, block.k, block.v, spec.head_dim);
  backend_.qkv_to_cache(pass.step, block.q, stored.k, stored.v, epilogue, pass.activations.rope(spec.rope),
                        layer.cache);
  const Matrix attended = as(block.attended, weights.o.input);
  for (const AttentionGroup& group : pass.groups.of(spec)) {
    const Matrix q = block.q.row_range(group.first_row, group.rows);
    if (trace_)
      trace_attention(backend_, trace_, layer.name,
                      {q, group.ranges.front(), group.sequences, layer.cache, layer.attention});
    pass.attention(layer, {{}, group.sequences}, q, group.ranges,
                   attended.row_range(group.first_row, group.rows));
  }
  return attended;
}

Matrix Decoder::room_for(int64_t rows, int64_t cols, Buffer& memory) {
  // At least steady_tokens rows: 8 MiB for a vocabulary of 131,072.
  const int64_t room = std::max(rows, backend_.traits().steady_tokens);
  const size_t bytes = static_cast<size_t>(room * cols) * sizeof(float);
  if (memory.bytes() < bytes) {
    memory = Buffer();  // the old memory is freed first
    memory = backend_.allocate(bytes);
  }
  return f32(memory, rows, cols);
}

Matrix Decoder::logits(const Matrix& hidden_rows) {
  const bool divided = ranks_ != nullptr;
  const int64_t rows = hidden_rows.rows, own_cols = weights_.head.blocks[0].w.rows;
  const Matrix out = room_for(rows, own_cols, divided ? own_logits_ : logits_);
  const bool capped = spec_.logits_multiplier != 1.0F || spec_.logits_softcap > 0.0F;
  backend_.linear(hidden_rows, weights_.head,
                  capped ? Epilogue::capped(spec_.logits_multiplier, spec_.logits_softcap) : Epilogue(), out);
  if (!divided) return out;
  const Matrix all = ranks_->rank() == 0 ? room_for(rows, spec_.vocab_size, logits_) : Matrix();
  gather_columns(*ranks_, out, split_.vocab, 1, all, false);
  return all;
}

}  // namespace lariat
