#include "models/families/family.h"

namespace lariat {

// Seed-OSS (transformers 5.24, models/seed_oss): a Llama with separate keys for biases.
ModelSpec read_seed_oss(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 155136;
  defaults.intermediate_size = 27648;
  defaults.n_layers = 64;
  defaults.n_heads = 80;
  defaults.n_kv_heads = 8;
  defaults.head_dim = config.present("head_dim") ? 0 : 128;  // null: hidden_size / heads
  defaults.max_position_embeddings = 524288;
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  const bool qkv = config.boolean("attention_bias").value_or(true);
  const bool out = config.boolean("attention_out_bias").value_or(false);
  const bool mlp = config.boolean("mlp_bias").value_or(false);
  spec.bias_keys = "attention_bias mlp_bias";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = qkv;
    layer.attention.o_bias = out;
    layer.feed_forward.bias = mlp;
  }
  if (!config.has("rope_theta") && !config.has("rope_parameters"))
    spec.warnings.push_back(
        config.message("rope_theta", "10000, transformers' default; the 36B model has 1e7"));
  return spec;
}

}  // namespace lariat
