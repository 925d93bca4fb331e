#include "models/run/activations.h"

#include <algorithm>

#include "kernels/integers.h"

namespace lariat {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, for each matrix

// Columns of a layer's queries; latent attention: of the longer of both kinds.
int64_t q_size(const AttentionSpec& attention) {
  return attention.n_heads * std::max(attention.head_dim, attention.latent.query_dim());
}

int64_t kv_size(const AttentionSpec& attention) { return attention.n_kv_heads * attention.head_dim; }

// Rounded up: the following matrix starts at a multiple of kAlignment.
int64_t qkv_size(const AttentionSpec& attention) {
  return round_up<int64_t>(q_size(attention) + 2 * kv_size(attention), kAlignment / int64_t{sizeof(float)});
}

// Inner values, or gate and up of the experts.
int64_t inner_size(const FeedForwardSpec& feed_forward) {
  const ExpertsSpec& experts = feed_forward.experts;
  const int64_t of_experts = experts.n > 0 ? 2 * experts.router.n_chosen * experts.intermediate_size : 0;
  return std::max(feed_forward.intermediate_size, of_experts);
}

}  // namespace

RopeTable Activations::rope(int index) const {
  if (index >= 0) return ropes[static_cast<size_t>(index)];
  RopeTable none = ropes.front();
  none.cos.cols = none.sin.cols = none.rotary_dim = 0;
  return none;
}

QkvBlock qkv_of(const Activations& a, const AttentionSpec& attention) {
  const int64_t rows = a.n_tokens(), q_cols = attention.n_heads * attention.head_dim,
                kv_cols = kv_size(attention);
  const Matrix all = f32(a.block, rows, q_cols + 2 * kv_cols);
  float* const behind = all.f32() + rows * qkv_size(attention);
  return {all, all.column_range(0, q_cols), all.column_range(q_cols, kv_cols),
          all.column_range(q_cols + kv_cols, kv_cols), Matrix(behind, DType::kF32, rows, q_cols)};
}

QkvBlock latent_qkv_of(const Activations& a, const AttentionSpec& attention, int64_t q_cols) {
  const int64_t rows = a.n_tokens();
  const Matrix q = f32(a.block, rows, q_cols);
  float* const behind = q.f32() + rows * qkv_size(attention);
  return {{},
          q,
          Matrix(q.f32() + rows * q_cols, DType::kF32, rows, kv_size(attention)),
          {},
          Matrix(behind, DType::kF32, rows, q_cols)};
}

ActivationMemory::ActivationMemory(const ModelSpec& spec, std::span<const RopeScaling> ropes,
                                   Backend& backend, int64_t least)
    : spec_(spec), ropes_(ropes), backend_(backend), least_(least) {
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    const ExpertsSpec& experts = layer.feed_forward.experts;
    widths_.block =
        std::max({widths_.block, qkv_size(attention) + q_size(attention), inner_size(layer.feed_forward)});
    widths_.experts = std::max(widths_.experts, experts.n_logits());
    if (experts.n > 0) widths_.chosen = std::max(widths_.chosen, experts.router.n_chosen);
    widths_.parallel |= layer.parallel;
    const LatentSpec& latent = attention.latent;
    widths_.latent_row = std::max(widths_.latent_row, latent.q_rank);
    widths_.latent_heads =
        std::max(widths_.latent_heads, attention.n_heads * std::max(latent.nope_dim, latent.v_dim));
  }
}

size_t ActivationMemory::lay_out(int64_t n_tokens, std::byte* memory, Activations& to) const {
  size_t end = 0;
  const auto take = [&](int64_t rows, int64_t cols) {
    std::byte* const at = memory == nullptr ? nullptr : memory + end;
    end += static_cast<size_t>(round_up(rows * cols * int64_t{sizeof(float)}, kAlignment));
    return Matrix(at, DType::kF32, rows, cols);
  };
  const int64_t hidden = spec_.hidden_size;
  to.residual = take(n_tokens, hidden);
  to.normed = take(n_tokens, hidden);
  to.parallel = take(n_tokens, widths_.parallel ? hidden : 0);
  to.block = take(n_tokens, widths_.block);
  to.router_logits = take(n_tokens, widths_.experts);
  to.expert_outputs = take(n_tokens * widths_.chosen, widths_.chosen > 0 ? hidden : 0);
  to.expert_ids = take(n_tokens, widths_.chosen);
  to.expert_weights = take(n_tokens, widths_.chosen);
  to.latent_row = take(n_tokens, widths_.latent_row);
  to.latent_heads = take(n_tokens, widths_.latent_heads);
  to.ropes.resize(n_ropes_);
  for (size_t i = 0; i < to.ropes.size(); ++i) {
    const RopeScaling& rope = ropes_[i < ropes_.size() ? i : 0];
    RopeTable& table = to.ropes[i];
    table.rotary_dim = rope.rotary_dim;
    table.interleaved = rope.interleaved;
    table.cos = take(n_tokens, table.rotary_dim / 2);
    table.sin = take(n_tokens, table.rotary_dim / 2);
    table.q_scale = take(n_tokens, 1);
    table.whole_q_scale = spec_.scales_queries() || n_ropes_ > ropes_.size() ? take(n_tokens, 1) : Matrix();
  }
  return end;
}

const Activations& ActivationMemory::for_step(int64_t n_tokens, size_t n_ropes) {
  if (n_tokens > activations_.room || n_ropes != n_ropes_) {
    n_ropes_ = n_ropes;
    memory_ = Buffer();  // freed first: the two allocations never coexist
    activations_.room = 0;
    const int64_t room = std::max(n_tokens, least_);
    memory_ = backend_.allocate(lay_out(room, nullptr, activations_));
    activations_.room = room;
  }
  lay_out(n_tokens, static_cast<std::byte*>(memory_.data()), activations_);
  return activations_;
}

}  // namespace lariat
