#include "models/families/family.h"

namespace lariat {

// Granite 3: a Llama with four multipliers (transformers 5.23, models/granite).
ModelSpec read_granite(const JsonFields& config) {
  Defaults defaults;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/true, spec);
  check_sliding_layers(config, spec);
  const auto multiplier = [&](const char* key, double least) {
    return config.number(key, least, 1e6).value_or(1.0);
  };
  spec.embedding_multiplier = static_cast<float>(multiplier("embedding_multiplier", 0.0));
  spec.logits_multiplier = static_cast<float>(1.0 / multiplier("logits_scaling", 1e-6));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale = static_cast<float>(multiplier("attention_multiplier", 0.0));
    layer.residual_multiplier = static_cast<float>(multiplier("residual_multiplier", 0.0));
  }
  return spec;
}

}  // namespace lariat
