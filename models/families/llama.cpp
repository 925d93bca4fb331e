#include "models/families/family.h"

namespace lariat {

// Llama 1 to 3 (transformers 5.23).
ModelSpec read_llama(const JsonFields& config) {
  Defaults defaults;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/true, spec);
  check_sliding_layers(config, spec);
  return spec;
}

}  // namespace lariat
