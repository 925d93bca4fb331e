#include "models/families/family.h"

namespace lariat {

// Mistral and Ministral (transformers 5.24): one window, for all or some layers.
ModelSpec read_mistral(const JsonFields& config) {
  Defaults defaults;
  defaults.intermediate_size = 14336;
  defaults.n_kv_heads = 8;
  defaults.max_position_embeddings = 131072;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  const bool inner_mistral = !config.path("").empty() && config.string("model_type") == "mistral";
  if (inner_mistral || !config.has("layer_types")) {
    read_one_window(config, 4096, spec);
  } else {
    read_mixed_windows(config, read_window(config, 4096), 1, spec);
  }
  return spec;
}

// Queries are scaled by the logarithm of their position (get_llama_4_attn_scale).
ModelSpec read_ministral3(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 14336;
  defaults.n_layers = 34;
  defaults.n_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 262144;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.scales_queries = true;
  ModelSpec spec = read_decoder(config, defaults);
  read_one_window(config, 0, spec);
  const JsonFields rope = rope_object(config);
  if (rope.keys().empty()) config.fail("rope_parameters", "expected an object");
  spec.query_scale.log_beta = rope.number("llama_4_scaling_beta", 0.0, 1e3).value_or(0.0);
  spec.query_scale.log_ctx = spec.rope().original_ctx;
  return spec;
}

}  // namespace lariat
