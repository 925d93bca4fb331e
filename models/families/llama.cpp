#include "models/families/family.h"

namespace lariat {

// Llama 1 to 3 (transformers 5.23, models/llama/configuration_llama.py).
ModelSpec read_llama(const JsonFields& config) {
  Defaults defaults;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  const bool attention_bias = config.boolean("attention_bias").value_or(false);
  const bool mlp_bias = config.boolean("mlp_bias").value_or(false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = attention_bias;
    layer.feed_forward.bias = mlp_bias;
  }
  check_sliding_layers(config, spec);
  return spec;
}

}  // namespace lariat
