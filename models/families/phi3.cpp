#include "models/families/family.h"

namespace lariat {

// Phi-3, 3.5 and 4-mini (transformers 5.23).
ModelSpec read_phi3(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 32064;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 8192;
  defaults.max_position_embeddings = 4096;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 32000;
  // transformers ignores an original length inside the object (standardize_rope_params).
  if (!config.has("original_max_position_embeddings")) defaults.rope.original_ctx = 4096;
  defaults.rope.partial_is_key = true;
  ModelSpec spec = read_decoder(config, defaults);
  read_one_window(config, 0, spec);
  config.mark_read("auto_map");  // equivalent to transformers' class
  spec.names.q = spec.names.k = spec.names.v = "self_attn.qkv_proj";
  spec.names.gate = spec.names.up = "mlp.gate_up_proj";
  return spec;
}

}  // namespace lariat
