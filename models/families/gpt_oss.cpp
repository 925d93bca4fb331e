#include "models/families/family.h"

namespace lariat {

// gpt-oss (transformers 5.24).
ModelSpec read_gpt_oss(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 201088;
  defaults.hidden_size = 2880;
  defaults.intermediate_size = 2880;
  defaults.n_layers = 36;
  defaults.n_heads = 64;
  defaults.n_kv_heads = 8;
  defaults.head_dim = 64;
  defaults.max_position_embeddings = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope.theta = 150000.0;
  ModelSpec spec = read_decoder(config, defaults);
  // Without rope_parameters, transformers uses the published ones for any context.
  if (rope_object(config).keys().empty()) config.fail("rope_parameters", "expected an object");
  read_mixed_windows(config, read_window(config, 128), 2, spec);
  if (config.string("hidden_act").value_or("silu") != "silu")
    config.fail("hidden_act", "only silu, clamped, is supported; use another model");
  for (const auto& [key, only] :
       {std::pair("swiglu_limit", kClampedLimit), {"swiglu_alpha", kClampedSlope}}) {
    if (static_cast<float>(config.number(key, 0.0, 1e6).value_or(only)) != only)
      config.fail(key, "only the published models' value is supported; use another model");
  }
  for (const char* key : {"experts_per_token", "initial_context_length"}) config.mark_read(key);
  ExpertsSpec experts;
  experts.n = config.integer("num_local_experts", 1, kMaxExperts).value_or(128);
  experts.intermediate_size = spec.layers.front().feed_forward.intermediate_size;
  experts.router.n_chosen = config.integer("num_experts_per_tok", 1, experts.n).value_or(4);
  experts.router.normalise = true;
  experts.bias = true;
  const bool bias = config.boolean("attention_bias").value_or(true);
  spec.bias_keys = "attention_bias";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = bias;
    layer.attention.sinks = true;
    layer.feed_forward.activation = Activation::kClamped;
    use_experts(experts, 0, layer);
  }
  spec.names.router = "mlp.router";
  return spec;
}

// llama.cpp rounds the ends of yarn's ramp; the model was trained without rounding.
void adapt_gpt_oss(nlohmann::json& config) {
  adapt_mixtral(config);
  if (config.contains("rope_scaling") && config["rope_scaling"]["rope_type"] == "yarn")
    config["rope_scaling"]["truncate"] = false;
}

}  // namespace lariat
