#include "models/families/family.h"

namespace lariat {

// StarCoder2 (transformers 5.24, models/starcoder2): LayerNorms, an ungated feed-forward, biases everywhere.
ModelSpec read_starcoder2(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.norm_eps = "norm_epsilon";
  defaults.vocab_size = 49152;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 12288;
  defaults.n_layers = 30;
  defaults.n_heads = 24;
  defaults.n_kv_heads = 2;
  defaults.max_position_embeddings = 4096;
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.bos_token_id = defaults.eos_token_id = 50256;
  ModelSpec spec = read_decoder(config, defaults);
  read_one_window(config, 0, spec);
  // The published files have it too.
  const auto other = config.number("layer_norm_epsilon", 0.0, 1.0);
  if (other && static_cast<float>(*other) != spec.norm_eps)
    spec.warnings.push_back(config.message("layer_norm_epsilon", "ignored; norm_epsilon applies"));
  const bool bias = config.boolean("use_bias").value_or(true);
  spec.layer_norm = spec.norm_bias = true;
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = layer.feed_forward.bias = bias;
    layer.feed_forward.gated = false;
  }
  spec.names.up = "mlp.c_fc";
  spec.names.down = "mlp.c_proj";
  return spec;
}

// The converter drops the window.
void adapt_starcoder2(nlohmann::json& config) {
  config["norm_epsilon"] = config["layer_norm_eps"];
  config["use_bias"] = config["attention_bias"];
  for (const char* key : {"layer_norm_eps", "attention_bias", "mlp_bias"}) config.erase(key);
}

}  // namespace lariat
