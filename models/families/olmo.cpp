#include <utility>

#include "models/families/family.h"

// OLMo 2 and 3, OLMoE (transformers 5.24): norms only after attention and feed-forward, in OLMoE only before;
// q and k norms over all heads.
namespace lariat {
namespace {

ModelSpec read_olmo(const JsonFields& config, Defaults defaults) {
  defaults.vocab_size = 50304;
  defaults.norm_eps = 1e-5;
  defaults.eos_token_id = 50279;
  ModelSpec spec = read_decoder(config, defaults);
  if (config.boolean("attention_bias").value_or(false))
    config.fail("attention_bias", "biases before these norms are not supported; use a model without biases");
  for (LayerSpec& layer : spec.layers) {
    layer.norm_before = false;
    layer.norm_after = true;
    layer.attention.qk_norm = QkNorm::kAllHeads;
  }
  return spec;
}

}  // namespace

ModelSpec read_olmo2(const JsonFields& config) {
  ModelSpec spec = read_olmo(config, Defaults());
  check_sliding_layers(config, spec);
  return spec;
}

// Only layers without a window are scaled.
ModelSpec read_olmo3(const JsonFields& config) {
  Defaults defaults;
  defaults.rope.theta = 5e5;
  defaults.local_rope_theta = 5e5;  // independent of "rope_theta" (convert_rope_params_to_dict)
  ModelSpec spec = read_olmo(config, defaults);
  read_mixed_windows(config, read_window(config, 4096), 4, spec);
  return spec;
}

// clip_qkv clamps after the norms, unlike QkvEpilogue::clip; the published models have none.
ModelSpec read_olmoe(const JsonFields& config) {
  Defaults defaults;
  defaults.hidden_size = defaults.intermediate_size = 2048;
  defaults.n_layers = defaults.n_heads = 16;
  defaults.max_position_embeddings = 4096;
  ModelSpec spec = read_olmo(config, defaults);
  check_sliding_layers(config, spec);
  ExpertsSpec experts;
  experts.n = config.integer("num_experts", 1, kMaxExperts).value_or(64);
  experts.intermediate_size = spec.layers.front().feed_forward.intermediate_size;
  experts.router.n_chosen = config.integer("num_experts_per_tok", 1, experts.n).value_or(8);
  experts.router.normalise = config.boolean("norm_topk_prob").value_or(false);
  for (LayerSpec& layer : spec.layers) {
    std::swap(layer.norm_before, layer.norm_after);
    use_experts(experts, 0, layer);
  }
  return spec;
}

void adapt_olmoe(nlohmann::json& config) {
  config["num_experts"] = config["num_local_experts"];
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.erase("num_local_experts");
  config.erase("moe_intermediate_size");
}

}  // namespace lariat
