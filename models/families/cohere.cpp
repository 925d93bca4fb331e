#include "models/families/family.h"

// Command R and Aya (transformers 5.24, models/cohere, models/cohere2): one LayerNorm without bias for
// attention and feed-forward in parallel, adjacent pairs, multiplied logits.
namespace lariat {
namespace {

ModelSpec read_any_cohere(const JsonFields& config, double theta) {
  Defaults defaults;
  defaults.keys.norm_eps = "layer_norm_eps";
  defaults.vocab_size = 256000;
  defaults.hidden_size = 8192;
  defaults.intermediate_size = 22528;
  defaults.n_layers = 40;
  defaults.n_heads = 64;
  defaults.max_position_embeddings = 8192;
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 5;
  defaults.eos_token_id = 255001;
  defaults.rope = {.theta = theta, .interleaved = true};
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  spec.layer_norm = true;
  for (LayerSpec& layer : spec.layers) layer.parallel = true;
  spec.names.ffn_norm = spec.names.attention_norm;
  spec.logits_multiplier = static_cast<float>(config.number("logit_scale", 1e-6, 1e6).value_or(0.0625));
  return spec;
}

}  // namespace

// The gate refuses use_qk_norm (Command R+): a norm per head.
ModelSpec read_cohere(const JsonFields& config) {
  ModelSpec spec = read_any_cohere(config, 5e5);
  check_sliding_layers(config, spec);
  return spec;
}

// Layers with a window have RoPE, full layers none.
ModelSpec read_cohere2(const JsonFields& config) {
  ModelSpec spec = read_any_cohere(config, 1e4);
  const int64_t window = read_window(config, 4096);
  if (window == 0) config.fail("sliding_window", "expected a number, as in transformers");
  const auto every = config.integer("sliding_window_pattern", 1, kMaxLayers).value_or(4);
  read_mixed_windows(config, window, every, spec);
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.sliding_window == 0) layer.attention.rope = -1;
  }
  // Keys of the published files that describe the code.
  for (const char* unused : {"layer_switch", "order_of_interleaved_layers", "position_embedding_type",
                             "use_embedding_sharing", "use_gated_activation", "use_parallel_block"})
    config.mark_read(unused);
  return spec;
}

void adapt_cohere(nlohmann::json& config) {
  config["logit_scale"] = config["logits_scaling"];
  config.erase("logits_scaling");
}

}  // namespace lariat
