#include "models/families/family.h"

namespace lariat {

// Phi-1, 1.5 and 2 (transformers 5.24, models/phi): one LayerNorm for attention and feed-forward in parallel,
// biases everywhere.
ModelSpec read_phi(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.norm_eps = "layer_norm_eps";
  defaults.vocab_size = 51200;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 8192;
  defaults.n_layers = 24;
  defaults.norm_eps = 1e-5;
  defaults.activation = "gelu_new";
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.partial_rotary_factor = 0.5;
  defaults.rope.partial_is_key = true;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  spec.layer_norm = spec.norm_bias = spec.head_bias = true;
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = true;
    layer.attention.qkv_bias = layer.attention.o_bias = layer.feed_forward.bias = true;
    layer.feed_forward.gated = false;
  }
  TensorNames& names = spec.names;
  names.norm = "final_layernorm";
  names.ffn_norm = names.attention_norm;
  names.o = "self_attn.dense";
  names.up = "mlp.fc1";
  names.down = "mlp.fc2";
  return spec;
}

void adapt_phi(nlohmann::json& config) {
  config.erase("attention_bias");
  config.erase("mlp_bias");
  config.emplace("partial_rotary_factor", 1.0);  // of files whose heads rotate whole
}

}  // namespace lariat
