#include "models/decoder.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/integers.h"

namespace lariat {
namespace {

// Tokens of a step whose memory is fixed: as many as a CUDA step can have that it records, of bf16 weights.
// On every backend that memory takes so many rows of logits, too: 8 MiB of a vocabulary of 131,072.
constexpr int64_t kFewTokens = 16;

// What a backend may want products to read in place of f32 (Backend::input_dtype).
constexpr DType kRounded = DType::kBF16;

using Size = int64_t (*)(const LayerSpec&);

int64_t q_size(const LayerSpec& layer) {
  const AttentionSpec& attention = layer.attention;
  return attention.n_heads * std::max(attention.head_dim, attention.latent.query_dim());
}
int64_t kv_size(const LayerSpec& layer) { return layer.attention.n_kv_heads * layer.attention.head_dim; }
// Rounded up, so that what lies behind q, k and v in a block starts on a multiple of 256 bytes.
int64_t qkv_size(const LayerSpec& layer) { return round_up<int64_t>(q_size(layer) + 2 * kv_size(layer), 64); }
int64_t n_chosen(const LayerSpec& layer) {
  const ExpertsSpec& experts = layer.feed_forward.experts;
  return experts.n > 0 ? experts.router.n_chosen : 0;
}
int64_t inner_size(const LayerSpec& layer) {
  return std::max(layer.feed_forward.intermediate_size,
                  n_chosen(layer) * layer.feed_forward.experts.intermediate_size);
}
int64_t block_size(const LayerSpec& layer) {
  return std::max(qkv_size(layer) + q_size(layer), 2 * inner_size(layer));
}
// What latent attention needs for each head at a time: a part of its query, or its values.
int64_t heads_size(const LayerSpec& layer) {
  const LatentSpec& latent = layer.attention.latent;
  return layer.attention.n_heads * std::max(latent.nope_dim, latent.v_dim);
}

// Matrices of so many columns in one buffer: side by side in its rows, or one behind the other.
template <size_t kN>
std::array<Matrix, kN> parts_of(const Buffer& buffer, int64_t rows, const std::array<int64_t, kN>& cols,
                                bool side_by_side) {
  const int64_t all = std::accumulate(cols.begin(), cols.end(), int64_t{0});
  std::array<Matrix, kN> parts;
  auto* at = static_cast<float*>(buffer.data());
  for (size_t i = 0; i < kN; ++i) {
    parts[i] = Matrix(at, DType::kF32, rows, cols[i], side_by_side ? all : cols[i]);
    at += side_by_side ? cols[i] : rows * cols[i];
  }
  return parts;
}

std::string prefix(size_t layer) { return "layers." + std::to_string(layer) + "."; }

}  // namespace

Decoder::Decoder(const ModelSpec& spec, const Weights& weights, const RopeScaling& rope,
                 const KvGeometry& geometry, Backend& backend, DType compute)
    : spec_(spec), weights_(weights), rope_(rope), geometry_(geometry), backend_(backend), compute_(compute) {
  grow(few_, kFewTokens);
  if (spec.scores_take_mscale) score_scale_ = static_cast<float>(rope_score_scale(rope));
  const size_t bytes = spec.alibi_slopes.size() * sizeof(float);
  if (bytes == 0) return;
  slopes_ = backend.allocate(bytes);
  backend.copy_in(slopes_.data(), spec.alibi_slopes.data(), bytes);
}

void Decoder::grow(Workspace& memory, int64_t rows) {
  if (rows <= memory.rows) return;
  memory = Workspace();  // the old memory goes first: the two never exist together
  const auto widest = [&](Size size) {
    int64_t largest = 0;
    for (const LayerSpec& layer : spec_.layers) largest = std::max(largest, size(layer));
    return largest;
  };
  const auto allocate = [&](Buffer& buffer, int64_t cols) {
    if (cols > 0) buffer = backend_.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
  };
  const int64_t hidden = spec_.hidden_size, chosen = widest(n_chosen);
  for (Buffer* buffer : {&memory.residual, &memory.normed}) allocate(*buffer, hidden);
  const std::pair<Buffer*, Size> activations[] = {
      {&memory.block, block_size},
      {&memory.latent_q, [](const LayerSpec& layer) { return layer.attention.latent.q_rank; }},
      {&memory.heads, heads_size},
      {&memory.router, [](const LayerSpec& layer) { return layer.feed_forward.experts.n; }},
      {&memory.expert_ids, n_chosen},
      {&memory.expert_weights, n_chosen}};
  for (const auto& [buffer, size] : activations) allocate(*buffer, widest(size));
  allocate(memory.experts, chosen * hidden);
  allocate(memory.parallel, spec_.layers[0].parallel ? hidden : 0);
  if (memory.heads.data() != nullptr) {  // row t * n_heads + h belongs to head h
    const int64_t n_heads = spec_.layers[0].attention.n_heads;
    std::vector<int32_t> ids(static_cast<size_t>(rows * n_heads));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(static_cast<int64_t>(i) % n_heads);
    memory.head_ids = backend_.allocate(ids.size() * sizeof(int32_t));
    backend_.copy_in(memory.head_ids.data(), ids.data(), ids.size() * sizeof(int32_t));
  }
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

Matrix Decoder::forward(const Step& step, std::span<const SequenceRope> ropes,
                        std::span<const SequenceRope> local_ropes) {
  const auto n_tokens = static_cast<int64_t>(step.tokens.size());
  Workspace& memory = n_tokens <= kFewTokens ? few_ : many_;
  grow(memory, n_tokens);
  use(memory, n_tokens);
  if (spec_.has_rope()) backend_.rope_table(step, ropes, table_of(LayerRope::kGlobal));
  if (spec_.local_rope) backend_.rope_table(step, local_ropes, table_of(LayerRope::kLocal));
  backend_.embed(step.tokens, weights_.embed, weights_.embedding_multiplier, residual_);

  if (spec_.embedding_norm) backend_.norm(residual_, weights_.embedding_norm, residual_);

  const Norm& first = weights_.layers[0].attention_norm;
  if (first) backend_.norm(residual_, first, attention_input(0));
  for (size_t i = 0; i < spec_.layers.size(); ++i) layer(i, step);
  return normed_;
}

bool Decoder::read_rounded(std::initializer_list<const Matrix*> weights) const {
  return std::all_of(weights.begin(), weights.end(), [&](const Matrix* w) {
    return !*w || backend_.input_dtype(n_tokens_, *w, compute_) == kRounded;
  });
}

Matrix Decoder::product_input(std::initializer_list<const Matrix*> weights, const Matrix& plain,
                              Buffer& rounded) {
  if (!read_rounded(weights)) return plain;
  const size_t bytes = static_cast<size_t>(current_->rows * plain.cols) * size_of(kRounded);
  if (rounded.bytes() < bytes) {
    rounded = Buffer();  // the old memory goes first
    rounded = backend_.allocate(bytes);
  }
  return {rounded.data(), kRounded, plain.rows, plain.cols};
}

// What a layer's attention reads. Heads of latent attention are made of it as experts are, of f32.
Matrix Decoder::attention_input(size_t index) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  if (!layer.norm_before) return residual_;
  if (layer.attention.latent) return normed_;
  return product_input({&weights.q_proj, &weights.k_proj, &weights.v_proj}, normed_,
                       current_->rounded_normed);
}

// What its feed-forward reads. A router and experts take f32.
Matrix Decoder::ffn_input(size_t index) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  if (!layer.norm_before) return residual_;
  const Matrix plain = layer.parallel ? f32(current_->parallel, n_tokens_, spec_.hidden_size) : normed_;
  if (layer.feed_forward.experts.n > 0) return plain;
  return product_input({&weights.gate_proj, &weights.up_proj}, plain,
                       layer.parallel ? current_->parallel : current_->rounded_normed);
}

// In: the residual, and in attention_input what the norm in front of the layer makes of it. Out: likewise for
// what follows, the next layer or, in normed_, the model's end.
void Decoder::layer(size_t index, const Step& step) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const Matrix ffn_in = ffn_input(index);
  if (layer.parallel) backend_.norm(residual_, weights.ffn_norm, ffn_in);
  const Matrix attended = attention_block(index, attention_input(index), step);
  add_to_residual({index, "attention", attended, {weights.o_proj, weights.o_bias, normed_}},
                  weights.attention_post_norm, layer.parallel ? Norm() : weights.ffn_norm, ffn_in);
  const Matrix inner = ffn_block(index, ffn_in);
  const bool last = index + 1 == spec_.layers.size();
  add_to_residual({index, "feed_forward", inner, {weights.down_proj, weights.down_bias, normed_}},
                  weights.ffn_post_norm, last ? weights_.norm : weights_.layers[index + 1].attention_norm,
                  last ? normed_ : attention_input(index + 1));
  if (trace_) trace_matrix(backend_, trace_, prefix(index) + "output", residual_);
}

// A block's contribution joins the residual; the norm in front of what follows, if there is one, goes along
// and writes `next`.
void Decoder::add_to_residual(const Contribution& from, const Norm& post_norm, const Norm& next_norm,
                              const Matrix& next) {
  const float scale = spec_.layers[from.layer].residual_multiplier;
  if (from.x && !post_norm && !trace_) {
    return backend_.matmul_add_norm(from.x, from.product, compute_, residual_, scale, next_norm, next);
  }
  if (from.x) backend_.matmul(from.x, from.product.w, from.product.bias, compute_, normed_);
  if (trace_) trace_matrix(backend_, trace_, prefix(from.layer) + from.block, normed_);
  if (post_norm) backend_.norm(normed_, post_norm, normed_);
  backend_.add_norm(residual_, normed_, scale, next_norm, next);
}

// What o_proj makes the attention's contribution of. normed_, which may be `in`, is free then.
Matrix Decoder::attention_block(size_t index, const Matrix& in, const Step& step) {
  const LayerSpec& layer = spec_.layers[index];
  const AttentionSpec& spec = layer.attention;
  const bool by_head = spec.latent && heads_are_cheaper(index, step);
  const int64_t q_cols = spec.n_heads * (by_head ? spec.latent.query_dim() : spec.head_dim);
  const bool side_by_side = !spec.latent && backend_.joins_products();
  const auto [q, k, v] =
      parts_of<3>(current_->block, n_tokens_, {q_cols, kv_size(layer), kv_size(layer)}, side_by_side);
  if (spec.latent) {
    latent_query(index, in, q, !by_head);
    latent_to_cache(index, step, in, k);
  } else {
    project(index, step, in, q, k, v);
  }
  AttentionParams params{spec.n_heads, spec.scale * score_scale_, spec.sliding_window, spec.softcap, {}};
  if (slopes_.data() != nullptr) params.slopes = f32(slopes_, 1, spec.n_heads);
  return by_head ? attend_by_head(index, q, params, step) : attend(index, q, params, step);
}

// Attention over the cache as it is.
Matrix Decoder::attend(size_t index, const Matrix& q, const AttentionParams& params, const Step& step) {
  const AttentionSpec& spec = spec_.layers[index].attention;
  const bool rounded = !spec.latent && read_rounded({&weights_.layers[index].o_proj});
  float* const behind_qkv =
      static_cast<float*>(current_->block.data()) + n_tokens_ * qkv_size(spec_.layers[index]);
  const Matrix attended(behind_qkv, rounded ? kRounded : DType::kF32, n_tokens_, q.cols);
  const KvLayer& cache = geometry_.layers[index];
  const RopeTable table = table_of(spec.rope);
  if (trace_) trace_attention(backend_, trace_, prefix(index), {q, table, step.sequences, cache, params});
  backend_.attention(step, q, table, cache, params, attended);
  return spec.latent ? latent_values(index, attended) : attended;
}

// Queries to q, keys and values into the cache.
void Decoder::project(size_t index, const Step& step, const Matrix& in, const Matrix& q, const Matrix& k,
                      const Matrix& v) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const std::array products = {Product{weights.q_proj, {}, q}, Product{weights.k_proj, {}, k},
                               Product{weights.v_proj, {}, v}};
  backend_.project(in, products, compute_);
  if (weights.q_norm) backend_.norm(q, weights.q_norm, q);
  if (weights.k_norm) backend_.norm(k, weights.k_norm, k);
  backend_.qkv_to_cache(step, q, k, v, weights.qkv, table_of(layer.attention.rope), geometry_.layers[index]);
}

// What down_proj makes the feed-forward's contribution of; or, with experts, nothing: their contribution is
// in normed_, which may be `in`.
Matrix Decoder::ffn_block(size_t index, const Matrix& in) {
  const FeedForwardSpec& spec = spec_.layers[index].feed_forward;
  const LayerWeights& weights = weights_.layers[index];
  if (spec.experts.n == 0) return inner_block(spec, weights, in);
  const int64_t n = spec.experts.router.n_chosen;
  const Routing routing{static_cast<int32_t*>(current_->expert_ids.data()),
                        f32(current_->expert_weights, n_tokens_, n)};
  const Matrix experts = f32(current_->experts, n_tokens_ * n, spec_.hidden_size);
  expert_block(spec, weights.experts, in, routing, experts);
  const bool shared = spec.intermediate_size > 0;
  if (shared) {
    const Matrix inner = inner_block(spec, weights, in);
    backend_.matmul(inner, weights.down_proj, weights.down_bias, compute_, normed_);
  }
  backend_.combine_experts(experts, routing, shared, normed_);
  return {};
}

// The inner values of the feed-forward that every token goes through.
Matrix Decoder::inner_block(const FeedForwardSpec& spec, const LayerWeights& weights, const Matrix& in) {
  const int64_t cols = spec.intermediate_size;
  const auto [gate, up] = parts_of<2>(current_->block, n_tokens_, {cols, cols}, backend_.joins_products());
  const Matrix inner = product_input({&weights.down_proj}, spec.gated ? gate : up, current_->rounded_inner);
  if (spec.gated) {
    backend_.gated(in, {weights.gate_proj, weights.gate_bias, gate}, {weights.up_proj, weights.up_bias, up},
                   spec.activation, compute_, inner);
  } else {
    backend_.matmul(in, weights.up_proj, weights.up_bias, compute_, up);
    backend_.glu(up, Matrix(), spec.activation, inner);
  }
  return inner;
}

// What each token's experts make of it, row by choice, not yet weighed. The router is not rounded to 16 bits:
// that would choose other experts.
void Decoder::expert_block(const FeedForwardSpec& spec, const ExpertWeights& weights, const Matrix& in,
                           const Routing& routing, const Matrix& out) {
  const Matrix logits = f32(current_->router, n_tokens_, spec.experts.n);
  Router router = spec.experts.router;
  router.choice_bias = weights.choice_bias;
  backend_.matmul(in, weights.router, {}, DType::kF32, logits);
  backend_.route(logits, router, routing);
  const int64_t cols = spec.experts.intermediate_size;
  const auto [gate, up] = parts_of<2>(current_->block, out.rows, {cols, cols}, false);
  backend_.expert_matmul(in, weights.gate, routing, compute_, gate);
  backend_.expert_matmul(in, weights.up, routing, compute_, up);
  backend_.glu(gate, up, spec.activation, gate);
  backend_.expert_matmul(gate, weights.down, routing, compute_, out);
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
