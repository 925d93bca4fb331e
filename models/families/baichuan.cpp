#include "models/families/family.h"

namespace lariat {

// Baichuan-7B, first version (configuration_baichuan.py). Baichuan-13B and Baichuan 2 have other names.
ModelSpec read_baichuan(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.n_kv_heads = defaults.keys.head_dim = "";
  defaults.vocab_size = 64000;
  defaults.max_position_embeddings = 4096;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  spec.names.q = spec.names.k = spec.names.v = "self_attn.W_pack";
  return spec;
}

}  // namespace lariat
