#include <fmt/format.h>

#include "models/load/tensor_names.h"
#include "models/load/weight_source.h"

namespace lariat {
namespace {

struct LayerReader {
  const ModelSpec& spec;
  const LayerSpec& layer;
  Source& source;
  const Layout& layout;
  std::string prefix;
  const Split& split;

  const AttentionSpec& attention = layer.attention;
  const ExpertsSpec& experts = layer.feed_forward.experts;
  int64_t hidden = spec.hidden_size, inner = layer.feed_forward.intermediate_size;
  int64_t q_size = attention.n_heads * attention.head_dim,
          kv_size = attention.n_kv_heads * attention.head_dim;

  // The rank's part of a dimension, in runs of `width`; all of it without a split.
  Share own(std::vector<Share> LayerSplit::*dimension, int64_t width = 1) const {
    if (split.ranks == 1) return {};
    const auto index = static_cast<size_t>(&layer - spec.layers.data());
    const Share& part = split.of(split.layers[index].*dimension);
    return {part.first * width, part.count * width};
  }
  // The same for a vector that acts on the cache.
  Share cached(const Share& own) const { return split.by_sequence ? Share() : own; }
  Parameter rows(Parameter of, const Share& own) const {
    of.own_rows = own;
    return of;
  }
  Parameter cols(Parameter of, const Share& own) const {
    of.own_cols = own;
    return of;
  }
  Parameter matrix(const std::string& name, int64_t out, int64_t in, const RowRange& part = {},
                   Role role = Role::kProjection) const {
    return {prefix + name + ".weight", out, in, role, part};
  }
  Weight weight(std::initializer_list<Parameter> blocks) const { return source.weight(blocks); }
  Norm norm(const std::string& name, int64_t size, bool present = true) const {
    return present ? read_norm(spec, prefix + name, size, source) : Norm{};
  }
  Matrix bias(const std::string& name, int64_t size, bool present, const RowRange& part = {},
              const Share& own = {}) const {
    return present ? source.vector(rows({prefix + name + ".bias", 1, size, Role::kVector, part}, own))
                   : Matrix{};
  }
  // Whether this rank adds the bias to a sum over all ranks.
  bool adds_bias() const { return split.rank == 0; }

  // Rows of q (0), k (1) or v (2) if the three are one tensor.
  RowRange qkv_part(int which) const {
    const TensorNames& names = spec.names;
    if (names.swapped_halves && which < 2) return {.swap = attention.head_dim / 2};
    if (names.q != names.k) return {};
    const int64_t all = q_size + 2 * kv_size, size = which == 0 ? q_size : kv_size;
    if (!names.qkv_by_kv_head) return {all, which == 0 ? 0 : q_size + (which - 1) * kv_size, size, all};
    const int64_t groups = attention.n_kv_heads, q_run = q_size / groups, run = size / groups;
    return {all, which == 0 ? 0 : q_run + (which - 1) * run, run, all / groups};
  }

  void read_attention(LayerWeights& to) const {
    const TensorNames& names = spec.names;
    to.attention_norm = norm(names.attention_norm, hidden, layer.norm_before);
    to.attention_post_norm = norm(names.attention_post_norm, hidden, layer.norm_after);
    if (attention.latent) return read_latent(to);
    const Share q = own(&LayerSplit::heads, attention.head_dim),
                kv = own(&LayerSplit::kv_heads, attention.head_dim);
    to.qkv = weight({rows(matrix(names.q, q_size, hidden, qkv_part(0)), q),
                     rows(matrix(names.k, kv_size, hidden, qkv_part(1)), kv),
                     rows(matrix(names.v, kv_size, hidden, qkv_part(2), Role::kSensitive), kv)});
    to.o = weight({cols(matrix(names.o, hidden, q_size), q)});
    QkvEpilogue& epilogue = to.qkv_epilogue;
    epilogue.q_bias = bias(names.q, q_size, attention.qkv_bias, qkv_part(0), q);
    epilogue.k_bias = bias(names.k, kv_size, attention.qkv_bias, qkv_part(1), cached(kv));
    epilogue.v_bias = bias(names.v, kv_size, attention.qkv_bias, qkv_part(2), cached(kv));
    to.o.blocks[0].bias = bias(names.o, hidden, attention.o_bias && adds_bias());
    const bool all = attention.qk_norm == QkNorm::kAllHeads;
    const bool heads = !all && attention.qk_norm != QkNorm::kNone;
    epilogue.q_norm = norm(names.q_norm, attention.head_dim, heads).weight;
    epilogue.k_norm = norm(names.k_norm, attention.head_dim, heads).weight;
    epilogue.norm_eps = spec.norm_eps;
    epilogue.clip = attention.clip;
    if (attention.sinks)
      to.sinks = source.vector(rows({prefix + names.sinks, 1, attention.n_heads, Role::kVector, {}},
                                    cached(own(&LayerSplit::heads))));
    to.q_norm = norm(names.q_norm, q_size, all);
    to.k_norm = norm(names.k_norm, kv_size, all);
  }

  // Rows per head: q_b: not rotated, rotated; kv_b: U_h, V_h; k_b: U_h transposed; v_b: V_h. Rows of kv_a:
  // latent, rotated.
  void read_latent(LayerWeights& to) const {
    const TensorNames& names = spec.names;
    const LatentSpec& l = attention.latent;
    LatentWeights& latent = to.latent;
    const int64_t heads = attention.n_heads, q_in = l.q_rank > 0 ? l.q_rank : hidden;
    if (l.q_rank > 0) {
      latent.q_a = weight({matrix(names.q_a, l.q_rank, hidden)});
      latent.q_a_norm = norm(names.q_a_norm, l.q_rank);
      latent.q_a_norm.eps = l.norm_eps;
    }
    const Share own_heads = split.ranks == 1 ? Share{0, heads} : own(&LayerSplit::heads);
    const int64_t q_run = l.nope_dim + l.rope_dim, kv_run = l.nope_dim + l.v_dim;
    const auto head_rows = [&](const std::string& name, int64_t run, int64_t first, int64_t count, int64_t in,
                               Role role = Role::kProjection, bool transposed = false) {
      std::vector<Parameter> blocks;
      for (int64_t h = own_heads.first; h < own_heads.first + own_heads.count; ++h) {
        const RowRange part{heads * run, h * run + first, count, count};
        blocks.push_back({prefix + name + ".weight", count, in, role, part, transposed});
      }
      return source.weight(blocks);
    };
    const std::string& q = l.q_rank > 0 ? names.q_b : names.q;
    latent.q_nope = head_rows(q, q_run, 0, l.nope_dim, q_in);
    latent.q_rope = head_rows(q, q_run, l.nope_dim, l.rope_dim, q_in);
    if (layout.split_kv) {
      latent.k_up = head_rows(names.k_b, l.kv_rank, 0, l.kv_rank, l.nope_dim, Role::kPrefill, true);
      latent.k_absorb = head_rows(names.k_b, l.kv_rank, 0, l.kv_rank, l.nope_dim);
      latent.v_up = head_rows(names.v_b, l.v_dim, 0, l.v_dim, l.kv_rank);
    } else {
      latent.k_up = head_rows(names.kv_b, kv_run, 0, l.nope_dim, l.kv_rank, Role::kPrefill);
      latent.k_absorb = head_rows(names.kv_b, kv_run, 0, l.nope_dim, l.kv_rank, Role::kProjection, true);
      latent.v_up = head_rows(names.kv_b, kv_run, l.nope_dim, l.v_dim, l.kv_rank);
    }
    const int64_t all = l.kv_rank + l.rope_dim;
    latent.kv_a = weight({matrix(names.kv_a, l.kv_rank, hidden, {all, 0, l.kv_rank, all})});
    latent.kv_a_rope = weight({matrix(names.kv_a, l.rope_dim, hidden, {all, l.kv_rank, l.rope_dim, all})});
    latent.kv_a_norm = norm(names.kv_a_norm, l.kv_rank);
    latent.kv_a_norm.eps = l.norm_eps;
    to.o = weight({cols(matrix(names.o, hidden, heads * l.v_dim), own(&LayerSplit::heads, l.v_dim))});
  }

  void read_feed_forward(LayerWeights& to) const {
    const TensorNames& names = spec.names;
    const bool bias_too = layer.feed_forward.bias, shared = experts.n > 0;
    const bool as_one = shared && layout.stores(prefix + names.shared_gate_up + ".weight");
    const std::string& gate = as_one ? names.shared_gate_up : shared ? names.shared_gate : names.gate;
    const std::string& up = as_one ? names.shared_gate_up : shared ? names.shared_up : names.up;
    const std::string& down = shared ? names.shared_down : names.down;
    const bool fused = gate == up && layer.feed_forward.gated;
    to.ffn_norm = norm(names.ffn_norm, hidden, layer.norm_before);
    to.ffn_post_norm = norm(names.ffn_post_norm, hidden, layer.norm_after);
    if (experts.n > 0) read_experts(to.experts);
    if (inner == 0) return;
    const Share part = own(&LayerSplit::inner);
    const Parameter up_rows =
        rows(matrix(up, inner, hidden, fused ? RowRange{2 * inner, inner, inner, 0} : RowRange{}), part);
    if (layer.feed_forward.gated) {
      to.gate_up = weight(
          {rows(matrix(gate, inner, hidden, fused ? RowRange{2 * inner, 0, inner, 0} : RowRange{}), part),
           up_rows});
      to.gate_up.blocks[0].bias = bias(gate, inner, bias_too, {}, part);
    } else {
      to.gate_up = weight({up_rows});
    }
    to.gate_up.blocks.back().bias = bias(up, inner, bias_too, {}, part);
    if (layer.feed_forward.activation == Activation::kXielu) {
      const auto number = [&](const char* name) {
        return source.vector({prefix + names.xielu + name, 1, 1, Role::kVector, {}});
      };
      to.xielu = {number("alpha_p"), number("alpha_n"), number("beta"), number("eps")};
    }
    // Errors of values and of the outermost layers affect the logits most.
    const auto index = &layer - spec.layers.data();
    const bool outermost = index < 2 || index + 2 >= std::ssize(spec.layers);
    to.down = weight(
        {cols(matrix(down, hidden, inner, {}, outermost ? Role::kSensitive : Role::kProjection), part)});
    to.down.blocks[0].bias = bias(down, hidden, bias_too && adds_bias());
  }

  void read_experts(ExpertWeights& to) const {
    const TensorNames& names = spec.names;
    const Share part = own(&LayerSplit::expert_inner);
    const bool fused = layout.stores(prefix + names.expert_gate_up + ".weight");
    // first: of an expert's rows in a tensor of gate and up.
    const auto each = [&](const std::string& name, int64_t out, int64_t in, bool down, int64_t first = 0) {
      const bool in_one = fused && !down;
      const std::string stack = in_one ? names.expert_gate_up : std::string(name).erase(name.find("{}."), 3);
      const bool stacked = in_one || layout.stores(prefix + stack + ".weight");
      const int64_t all = in_one ? 2 * out : out;
      std::vector<Parameter> blocks;
      for (int64_t e = 0; e < experts.n; ++e) {
        blocks.push_back(
            stacked ? matrix(stack, out, in, {experts.n * all, e * all + (in_one ? first : 0), out, all})
                    : matrix(fmt::format(fmt::runtime(name), e), out, in));
        blocks.back().stacked = stacked;
        (down ? blocks.back().own_cols : blocks.back().own_rows) = part;
      }
      Weight weight = source.weight(blocks);
      if (!experts.bias || (down && !adds_bias())) return weight;
      Parameter biases{prefix + stack + ".bias", experts.n, out, Role::kPerExpert, {}};
      if (!down) biases.own_cols = part;
      weight.biases = source.vector(biases);
      return weight;
    };
    const Parameter router{prefix + names.router + ".weight", experts.n, hidden, Role::kRouter, {}};
    const Parameter shared{prefix + names.shared_router + ".weight", 1, hidden, Role::kRouter, {}};
    to.router = experts.shared_router ? weight({router, shared}) : weight({router});
    to.router.blocks[0].bias = bias(names.router, experts.n, experts.bias);
    if (experts.choice_bias) {
      const StoredTensor* bias = layout.find(prefix + names.choice_bias);
      const bool row = bias != nullptr && bias->shape.size() == 2;  // ERNIE's
      to.choice_bias = source.vector(
          {prefix + names.choice_bias, 1, experts.n, row ? Role::kPerExpert : Role::kVector, {}});
    }
    to.gate = each(names.expert_gate, experts.intermediate_size, hidden, false);
    to.up = each(names.expert_up, experts.intermediate_size, hidden, false, experts.intermediate_size);
    to.down = each(names.expert_down, hidden, experts.intermediate_size, true);
  }
};

}  // namespace

Norm read_norm(const ModelSpec& spec, const std::string& name, int64_t size, Source& source) {
  Parameter weight{name + ".weight", 1, size, Role::kNorm, {}};
  weight.ones = spec.unit_norms;
  Norm norm{source.vector(weight), {}, spec.norm_eps, spec.layer_norm};
  if (spec.norm_bias) norm.bias = source.vector({name + ".bias", 1, size, Role::kVector, {}});
  return norm;
}

LayerWeights read_layer(const ModelSpec& spec, size_t index, const Layout& layout, Source& source,
                        const Split& split) {
  const LayerReader reader{spec,
                           spec.layers[index],
                           source,
                           layout,
                           layout.root + fmt::format(fmt::runtime(spec.names.layer), index),
                           split};
  LayerWeights layer;
  reader.read_attention(layer);
  reader.read_feed_forward(layer);
  return layer;
}

}  // namespace lariat
