#include "models/families/family.h"

// Nemotron 3 and 4, Arcee and Jais 2 (transformers 5.24, models/nemotron, models/arcee, models/jais2): an
// ungated feed-forward with a squared ReLU.
namespace lariat {
namespace {

ModelSpec read_relu2(const JsonFields& config, Defaults defaults) {
  defaults.norm_eps = 1e-5;
  defaults.activation = "relu2";
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  read_biases(config, /*has_mlp_bias=*/true, spec);
  for (LayerSpec& layer : spec.layers) layer.feed_forward.gated = false;
  return spec;
}

}  // namespace

ModelSpec read_arcee(const JsonFields& config) {
  Defaults defaults;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 18432;
  defaults.max_position_embeddings = 4096;
  defaults.bos_token_id = 128000;
  defaults.eos_token_id = 128001;
  return read_relu2(config, defaults);
}

// LayerNorms that multiply by 1 + weight.
ModelSpec read_nemotron(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.norm_eps = "norm_eps";
  defaults.vocab_size = 256000;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 24576;
  defaults.n_heads = 48;
  defaults.max_position_embeddings = 4096;
  defaults.bos_token_id = 2;
  defaults.eos_token_id = 3;
  defaults.rope.partial_rotary_factor = 0.5;
  defaults.rope.partial_is_key = true;
  ModelSpec spec = read_relu2(config, defaults);
  spec.layer_norm = spec.norm_bias = spec.norm_plus_one = true;
  return spec;
}

ModelSpec read_jais2(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.norm_eps = "layer_norm_eps";
  defaults.vocab_size = 150272;
  defaults.hidden_size = 3328;
  defaults.intermediate_size = 26624;
  defaults.n_heads = 26;
  defaults.max_position_embeddings = 8192;
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 150024;
  ModelSpec spec = read_relu2(config, defaults);
  spec.layer_norm = spec.norm_bias = true;
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = config.boolean("attention_bias").value_or(true);
    layer.feed_forward.bias = config.boolean("mlp_bias").value_or(true);
  }
  return spec;
}

// The converter writes the norms' epsilon under both names.
void adapt_nemotron(nlohmann::json& config) {
  config["norm_eps"] = config["layer_norm_eps"];
  for (const char* key : {"layer_norm_eps", "rms_norm_eps"}) config.erase(key);
  config.emplace("partial_rotary_factor", 1.0);  // of files whose heads rotate whole
}

}  // namespace lariat
