#include "models/families/family.h"

namespace lariat {

// Mistral: one sliding window for all layers, never a bias (transformers 5.23,
// models/mistral/configuration_mistral.py).
ModelSpec read_mistral(const JsonFields& config) {
  Defaults defaults;
  defaults.intermediate_size = 14336;
  defaults.n_kv_heads = 8;
  defaults.max_position_embeddings = 131072;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  const int64_t window = read_window(config, 4096);
  for (LayerSpec& layer : spec.layers) layer.attention.sliding_window = window;
  check_sliding_layers(config, spec);
  return spec;
}

}  // namespace lariat
