#include "models/families/family.h"

namespace lariat {

// Orion (configuration_orion.py, modeling_orion.py of OrionStarAI/Orion-14B-Base): a Llama with LayerNorms.
ModelSpec read_orion(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 84608;
  defaults.intermediate_size = 15360;
  defaults.n_layers = defaults.n_heads = 40;
  defaults.max_position_embeddings = 4096;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  spec.layer_norm = spec.norm_bias = true;
  return spec;
}

void adapt_orion(nlohmann::json& config) {
  config["rms_norm_eps"] = config["layer_norm_eps"];
  for (const char* key : {"layer_norm_eps", "attention_bias", "mlp_bias"}) config.erase(key);
}

}  // namespace lariat
