#include "models/families/family.h"

namespace lariat {

// ERNIE 4.5, dense (transformers 5.24, models/ernie4_5): a Llama that rotates adjacent pairs.
ModelSpec read_ernie(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 103424;
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 3072;
  defaults.n_layers = 18;
  defaults.n_heads = 16;
  defaults.n_kv_heads = 2;
  defaults.head_dim = config.present("head_dim") ? 0 : 128;  // null: hidden_size / heads
  defaults.max_position_embeddings = 131072;
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope = {.theta = 5e5, .interleaved = true};
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  const bool bias = config.boolean("use_bias").value_or(false);
  for (LayerSpec& layer : spec.layers)
    layer.attention.qkv_bias = layer.attention.o_bias = layer.feed_forward.bias = bias;
  return spec;
}

void adapt_ernie(nlohmann::json& config) {
  config["use_bias"] = config["attention_bias"];
  config.erase("attention_bias");
  config.erase("mlp_bias");
}

}  // namespace lariat
