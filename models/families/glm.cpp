#include "models/families/family.h"

namespace lariat {

// GLM-4 in transformers (5.24, models/glm).
ModelSpec read_glm(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 151552;
  defaults.intermediate_size = 13696;
  defaults.n_layers = 40;
  defaults.n_kv_heads = 2;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 131072;
  defaults.norm_eps = 1.5625e-7;
  defaults.rope.partial_rotary_factor = 0.5;
  defaults.rope.partial_is_key = true;
  defaults.rope.interleaved = true;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  const bool bias = config.boolean("attention_bias").value_or(true);
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = bias;
  for (const int32_t id : {151329, 151336, 151338}) {
    if (!config.has("eos_token_id") && id < spec.vocab_size) spec.eos_token_ids.push_back(id);
  }
  spec.bias_keys = "attention_bias";
  spec.names.gate = spec.names.up = "mlp.gate_up_proj";
  return spec;
}

// GLM-4-0414: additional norms after attention and feed-forward (models/glm4).
ModelSpec read_glm4(const JsonFields& config) {
  ModelSpec spec = read_glm(config);
  for (LayerSpec& layer : spec.layers) layer.norm_after = true;
  spec.names.attention_post_norm = "post_self_attn_layernorm";
  spec.names.ffn_post_norm = "post_mlp_layernorm";
  return spec;
}

}  // namespace lariat
