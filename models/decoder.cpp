#include "models/decoder.h"

#include <algorithm>
#include <array>

namespace lariat {
namespace {

// What a backend may want products to read in place of f32 (Backend::input_dtype).
constexpr DType kRounded = DType::kBF16;

// Room for a step of the first is made in any case, so that a batch which grows stays where it is: as many as
// a CUDA step can have that it records, of bf16 weights. For more than the second, once there is such a step.
constexpr int64_t kFewTokens = 16, kManyTokens = 512;

// What a block adds to the residual: a product of x, which goes through a.normed, or without x what a.normed
// holds already.
struct Contribution {
  const char* block;  // as a trace has it
  Matrix x;
  const Matrix &w, &bias;
  const Norm& post_norm;
};

// A block's contribution joins the residual; the norm in front of what follows, if there is one, goes along
// and writes `next`.
void add_to_residual(const Layer& layer, const Contribution& from, const Norm& next_norm, const Matrix& next,
                     const Pass& pass) {
  Backend& backend = pass.backend;
  const Activations& a = pass.activations;
  const float scale = layer.spec.residual_multiplier;
  if (from.x && !from.post_norm && !pass.trace) {
    return backend.matmul_add_norm(from.x, {from.w, from.bias, a.normed}, pass.compute, a.residual, scale,
                                   next_norm, next);
  }
  if (from.x) backend.matmul(from.x, from.w, from.bias, pass.compute, a.normed);
  if (pass.trace) trace_matrix(backend, pass.trace, layer.name + from.block, a.normed);
  if (from.post_norm) backend.norm(a.normed, from.post_norm, a.normed);
  backend.add_norm(a.residual, a.normed, scale, next_norm, next);
}

// Queries to block.q, keys and values into the cache.
void project(const Layer& layer, const Matrix& in, const QkvBlock& block, const Pass& pass) {
  const LayerWeights& weights = layer.weights;
  const Product products[] = {
      {weights.q_proj, {}, block.q}, {weights.k_proj, {}, block.k}, {weights.v_proj, {}, block.v}};
  pass.backend.project(in, products, pass.compute);
  if (weights.q_norm) pass.backend.norm(block.q, weights.q_norm, block.q);
  if (weights.k_norm) pass.backend.norm(block.k, weights.k_norm, block.k);
  pass.backend.qkv_to_cache(pass.step, block.q, block.k, block.v, weights.qkv,
                            pass.activations.rope(layer.spec.attention.rope), layer.cache);
}

// What each token's experts make of it, row by choice, not yet weighed. The router is not rounded to 16 bits:
// that would choose other experts.
void experts(const Layer& layer, const Matrix& in, const Pass& pass) {
  Backend& backend = pass.backend;
  const Activations& a = pass.activations;
  const FeedForwardSpec& spec = layer.spec.feed_forward;
  const ExpertWeights& weights = layer.weights.experts;
  const Matrix logits = f32(a.router_logits, in.rows, spec.experts.n);
  const Routing routing = a.routing(spec.experts.router.n_chosen);
  Router router = spec.experts.router;
  router.choice_bias = weights.choice_bias;
  backend.matmul(in, weights.router, {}, DType::kF32, logits);
  backend.route(logits, router, routing);
  const int64_t rows = in.rows * router.n_chosen, cols = spec.experts.intermediate_size;
  const auto [gate, up] = gate_and_up_of(a, rows, cols, false);
  backend.expert_matmul(in, weights.gate, routing, pass.compute, gate);
  backend.expert_matmul(in, weights.up, routing, pass.compute, up);
  backend.glu(gate, up, spec.activation, gate);
  backend.expert_matmul(gate, weights.down, routing, pass.compute, a.expert_outputs.row_range(0, rows));
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec, const Weights& weights, std::span<const RopeScaling> ropes,
                 const KvGeometry& geometry, Backend& backend, DType compute, int64_t chunk,
                 int64_t latent_workspace)
    : spec_(spec),
      weights_(weights),
      backend_(backend),
      compute_(compute),
      activations_(spec, ropes, backend, std::clamp(chunk, kFewTokens, kManyTokens)) {
  const auto score_scale = spec.scores_take_mscale ? static_cast<float>(rope_score_scale(ropes[0])) : 1.0F;
  Matrix slopes;
  if (const size_t bytes = spec.alibi_slopes.size() * sizeof(float); bytes > 0) {
    slopes_ = backend.allocate(bytes);
    backend.copy_in(slopes_.data(), spec.alibi_slopes.data(), bytes);
    slopes = f32(slopes_, 1, std::ssize(spec.alibi_slopes));
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    layers_.push_back({spec.layers[i],
                       weights.layers[i],
                       geometry.layers[i],
                       {attention.n_heads, attention.scale * score_scale, attention.sliding_window,
                        attention.softcap, slopes},
                       "layers." + std::to_string(i) + "."});
    if (attention.latent && !latent_) latent_.emplace(backend, latent_workspace);
  }
}

Matrix Decoder::forward(const Step& step, std::span<const std::vector<SequenceRope>> ropes) {
  const Activations& a = activations_.for_step(std::ssize(step.tokens));
  for (size_t r = 0; spec_.has_rope() && r < ropes.size(); ++r)
    backend_.rope_table(step, ropes[r], a.ropes[r]);
  backend_.embed(step.tokens, weights_.embed, weights_.embedding_multiplier, a.residual);
  if (spec_.embedding_norm) backend_.norm(a.residual, weights_.embedding_norm, a.residual);
  const Norm& first = layers_.front().weights.attention_norm;
  if (first) backend_.norm(a.residual, first, attention_input(layers_.front(), a));
  const Pass pass{backend_, compute_, step, a, trace_};
  for (size_t i = 0; i < layers_.size(); ++i) run(i, pass);
  return a.normed;
}

// In: the residual, and in attention_input what the norm in front of the layer makes of it. Out: likewise for
// what follows, the next layer or, in a.normed, the model's end.
void Decoder::run(size_t index, const Pass& pass) {
  const Activations& a = pass.activations;
  const Layer& layer = layers_[index];
  const LayerWeights& weights = layer.weights;
  const Layer* const next = index + 1 < layers_.size() ? &layers_[index + 1] : nullptr;
  const Matrix ffn_in = feed_forward_input(layer, a);
  if (layer.spec.parallel) backend_.norm(a.residual, weights.ffn_norm, ffn_in);
  const Matrix attended = attention(layer, attention_input(layer, a), pass);
  add_to_residual(layer, {"attention", attended, weights.o_proj, weights.o_bias, weights.attention_post_norm},
                  layer.spec.parallel ? Norm() : weights.ffn_norm, ffn_in, pass);
  const Matrix inner = feed_forward(layer, ffn_in, pass);
  add_to_residual(layer, {"feed_forward", inner, weights.down_proj, weights.down_bias, weights.ffn_post_norm},
                  next != nullptr ? next->weights.attention_norm : weights_.norm,
                  next != nullptr ? attention_input(*next, a) : a.normed, pass);
  if (trace_) trace_matrix(backend_, trace_, layer.name + "output", a.residual);
}

// Whether products with all of `weights` read 16 bits on this backend. Absent weights do not count.
bool Decoder::reads_rounded(std::span<const Matrix* const> weights, int64_t n_tokens) const {
  return std::all_of(weights.begin(), weights.end(), [&](const Matrix* w) {
    return !*w || backend_.input_dtype(n_tokens, *w, compute_) == kRounded;
  });
}

// What they read: `plain`, which is f32, or as much of `rounded`, which is made large enough, in 16 bits.
Matrix Decoder::product_input(const Activations& a, std::span<const Matrix* const> weights,
                              const Matrix& plain, Buffer& rounded) {
  if (!reads_rounded(weights, plain.rows)) return plain;
  const size_t bytes = static_cast<size_t>(a.room * plain.cols) * size_of(kRounded);
  if (rounded.bytes() < bytes) {
    rounded = Buffer();  // the old memory goes first
    rounded = backend_.allocate(bytes);
  }
  return {rounded.data(), kRounded, plain.rows, plain.cols};
}

// What a layer's attention reads. Heads of latent attention are made of it as experts are, of f32.
Matrix Decoder::attention_input(const Layer& layer, const Activations& a) {
  const LayerWeights& weights = layer.weights;
  if (!layer.spec.norm_before) return a.residual;
  if (layer.spec.attention.latent) return a.normed;
  const std::array readers{&weights.q_proj, &weights.k_proj, &weights.v_proj};
  return product_input(a, readers, a.normed, rounded_.normed);
}

// What its feed-forward reads. A router and experts take f32.
Matrix Decoder::feed_forward_input(const Layer& layer, const Activations& a) {
  const LayerWeights& weights = layer.weights;
  if (!layer.spec.norm_before) return a.residual;
  const bool experts = layer.spec.feed_forward.experts.n > 0;
  const std::array readers{&weights.gate_proj, &weights.up_proj};
  if (layer.spec.parallel) {  // memory that nothing else is in
    const bool rounded = !experts && reads_rounded(readers, a.n_tokens());
    return {a.parallel.data, rounded ? kRounded : DType::kF32, a.n_tokens(), a.parallel.cols};
  }
  return experts ? a.normed : product_input(a, readers, a.normed, rounded_.normed);
}

// What o_proj makes the attention's contribution of. a.normed, which may be `in`, is free then.
Matrix Decoder::attention(const Layer& layer, const Matrix& in, const Pass& pass) {
  const AttentionSpec& spec = layer.spec.attention;
  if (spec.latent) return latent_->attend(layer, in, pass);
  QkvBlock block = qkv_of(pass.activations, spec, spec.n_heads * spec.head_dim, backend_.joins_products());
  project(layer, in, block, pass);
  if (reads_rounded(std::array{&layer.weights.o_proj}, in.rows))
    block.attended = Matrix(block.attended.data, kRounded, in.rows, block.q.cols);
  const RopeTable table = pass.activations.rope(spec.rope);
  if (trace_) {
    trace_attention(backend_, trace_, layer.name,
                    {block.q, table, pass.step.sequences, layer.cache, layer.attention});
  }
  backend_.attention(pass.step, block.q, table, layer.cache, layer.attention, block.attended);
  return block.attended;
}

// What down_proj makes the feed-forward's contribution of; or, with experts, nothing: their contribution is
// in a.normed, which may be `in`.
Matrix Decoder::feed_forward(const Layer& layer, const Matrix& in, const Pass& pass) {
  const Activations& a = pass.activations;
  const FeedForwardSpec& spec = layer.spec.feed_forward;
  if (spec.experts.n == 0) return inner_values(layer, in, pass);
  experts(layer, in, pass);
  const Routing routing = a.routing(spec.experts.router.n_chosen);
  const bool shared = spec.intermediate_size > 0;
  if (shared) {
    const Matrix inner = inner_values(layer, in, pass);
    backend_.matmul(inner, layer.weights.down_proj, layer.weights.down_bias, compute_, a.normed);
  }
  const int64_t rows = in.rows * spec.experts.router.n_chosen;
  backend_.combine_experts(a.expert_outputs.row_range(0, rows), routing, shared, a.normed);
  return {};
}

// The inner values of the feed-forward that every token goes through.
Matrix Decoder::inner_values(const Layer& layer, const Matrix& in, const Pass& pass) {
  const FeedForwardSpec& spec = layer.spec.feed_forward;
  const LayerWeights& weights = layer.weights;
  const auto [gate, up] =
      gate_and_up_of(pass.activations, in.rows, spec.intermediate_size, backend_.joins_products());
  const Matrix inner =
      product_input(pass.activations, std::array{&weights.down_proj}, spec.gated ? gate : up, rounded_.inner);
  if (spec.gated) {
    backend_.gated(in, {weights.gate_proj, weights.gate_bias, gate}, {weights.up_proj, weights.up_bias, up},
                   spec.activation, compute_, inner);
  } else {
    backend_.matmul(in, weights.up_proj, weights.up_bias, compute_, up);
    backend_.glu(up, Matrix(), spec.activation, inner);
  }
  return inner;
}

Matrix Decoder::logits(const Matrix& hidden_rows) {
  // 8 MiB at least of a vocabulary of 131,072.
  const int64_t room = std::max(hidden_rows.rows, kFewTokens);
  const size_t bytes = static_cast<size_t>(room * spec_.vocab_size) * sizeof(float);
  if (logits_.bytes() < bytes) {
    logits_ = Buffer();  // the old memory goes first
    logits_ = backend_.allocate(bytes);
  }
  const Matrix out = f32(logits_, hidden_rows.rows, spec_.vocab_size);
  backend_.matmul(hidden_rows, weights_.head, {}, compute_, out);
  if (spec_.logits_multiplier != 1.0F || spec_.logits_softcap > 0.0F)
    backend_.soft_cap(out, spec_.logits_multiplier, spec_.logits_softcap);
  return out;
}

}  // namespace lariat
