#include "models/families/family.h"

namespace lariat {

// StableLM 3B and 2 1.6B (transformers 5.24, models/stablelm): a Llama with LayerNorms and partial rotation.
// The gate refuses qk_layernorm (12B): one norm per head.
ModelSpec read_stablelm(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.norm_eps = "layer_norm_eps";
  defaults.vocab_size = 50304;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6912;
  defaults.n_kv_heads = 32;
  defaults.max_position_embeddings = 4096;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = defaults.eos_token_id = 0;
  defaults.rope.partial_rotary_factor = 0.25;
  defaults.rope.partial_is_key = true;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  const bool bias = config.boolean("use_qkv_bias").value_or(false);
  const bool parallel = config.boolean("use_parallel_residual").value_or(false);
  spec.layer_norm = spec.norm_bias = true;
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = bias;
    layer.parallel = parallel;
  }
  if (parallel) spec.names.ffn_norm = spec.names.attention_norm;
  return spec;
}

void adapt_stablelm(nlohmann::json& config) {
  config["use_qkv_bias"] = config["attention_bias"];
  config.erase("attention_bias");
  config.emplace("partial_rotary_factor", 1.0);  // of files whose heads rotate whole
}

}  // namespace lariat
