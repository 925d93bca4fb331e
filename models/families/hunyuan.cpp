#include <algorithm>

#include "models/families/family.h"

// Hunyuan (transformers 5.24, models/hunyuan_v1_dense, hunyuan_v1_moe): norms of q and k follow RoPE.
namespace lariat {
namespace {

// One number, or a list of equal numbers for the layers.
int64_t read_equal(const JsonFields& config, const char* key, int64_t least, int64_t missing) {
  const auto values = config.integers(key, least, kMaxIntermediate).value_or(std::vector{missing});
  if (values.empty() || std::ranges::any_of(values, [&](int64_t value) { return value != values.front(); }))
    config.fail(key, "expected one number for all layers; use another model");
  return values.front();
}

}  // namespace

ModelSpec read_hunyuan(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 290943;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.alpha_is_key = true;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  check_sliding_layers(config, spec);
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kAfterRope;
  const int64_t size = spec.layers.front().attention.head_dim;
  if (config.integer("attention_head_dim", 1, kMaxHeadDim).value_or(size) != size)
    config.fail("attention_head_dim", "expected head_dim; correct one of them");
  spec.names.q_norm = "self_attn.query_layernorm";
  spec.names.k_norm = "self_attn.key_layernorm";
  if (config.boolean("use_cla").value_or(false))
    config.fail("use_cla", "keys and values shared by layers are not supported; use another model");
  if (read_equal(config, "num_shared_expert", 1, 1) != 1)
    config.fail("num_shared_expert", "only 1 is supported; use another model");
  if (config.integer("moe_layer_num_skipped", 0, kMaxLayers).value_or(0) != 0)
    config.fail("moe_layer_num_skipped", "only 0 is supported; use another model");
  for (const char* unused :
       {"cla_share_factor", "moe_topk", "moe_intermediate_size", "use_mixed_mlp_moe", "norm_type",
        "dense_list", "moe_drop_tokens", "moe_random_routing_dropped_token", "group_limited_greedy",
        "routed_scaling_factor", "use_rotary_pos_emb", "org_vocab_size"})
    config.mark_read(unused);
  return spec;
}

ModelSpec read_hunyuan_moe(const JsonFields& config) {
  ModelSpec spec = read_hunyuan(config);
  const int64_t size = spec.layers.front().feed_forward.intermediate_size;
  if (read_equal(config, "moe_intermediate_size", 1, size) != size)
    config.fail("moe_intermediate_size",
                "expected intermediate_size, as transformers reads; correct one of them");
  ExpertsSpec experts;
  experts.n = config.integer("num_experts", 1, kMaxExperts).value_or(1);
  experts.intermediate_size = size;
  experts.router.n_chosen = read_equal(config, "moe_topk", 1, 1);
  if (experts.router.n_chosen > experts.n) config.fail("moe_topk", "expected at most num_experts");
  experts.router.normalise = true;
  if (!config.boolean("use_mixed_mlp_moe").value_or(true))
    config.fail("use_mixed_mlp_moe", "a model without shared expert is not supported; use another model");
  for (LayerSpec& layer : spec.layers) use_experts(experts, 1, layer);
  spec.names.router = "mlp.gate.wg";
  spec.names.shared_gate = "mlp.shared_mlp.gate_proj";
  spec.names.shared_up = "mlp.shared_mlp.up_proj";
  spec.names.shared_down = "mlp.shared_mlp.down_proj";
  return spec;
}

void adapt_hunyuan_moe(nlohmann::json& config) {
  for (const auto& [from, to] : {std::pair("num_local_experts", "num_experts"),
                                 {"num_experts_per_tok", "moe_topk"},
                                 {"n_shared_experts", "num_shared_expert"}}) {
    if (config.contains(from)) config[to] = config[from];
    config.erase(from);
  }
}

}  // namespace lariat
