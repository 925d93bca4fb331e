#include <cmath>

#include "models/families/family.h"

// Gemma 1, 2 and 3 (transformers 5.23). The factor sqrt(hidden_size) is rounded to the embeddings' dtype.
namespace lariat {
namespace {

Defaults gemma_defaults() {
  Defaults defaults;
  defaults.vocab_size = 256000;
  defaults.n_layers = 26;
  defaults.n_heads = 8;
  defaults.n_kv_heads = 4;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.head_dim = 256;
  defaults.max_position_embeddings = 8192;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 2;
  defaults.eos_token_id = 1;
  defaults.keys.activation = "hidden_activation";
  defaults.activation = "gelu_pytorch_tanh";
  return defaults;
}

ModelSpec read_any_gemma(const JsonFields& config, const Defaults& defaults) {
  ModelSpec spec = read_decoder(config, defaults);
  spec.norm_plus_one = true;
  spec.embedding_multiplier = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden_size)));
  spec.round_embedding_multiplier = true;
  read_biases(config, /*has_mlp_bias=*/false, spec);
  return spec;
}

// null means none.
float read_cap(const JsonFields& config, const char* key, double missing) {
  const double cap = config.number(key, 1e-3, 1e6).value_or(config.present(key) ? 0.0 : missing);
  return static_cast<float>(cap);
}

// Settings of Gemma 2 and 3.
void read_second(const JsonFields& config, ModelSpec& spec) {
  const double scalar = config.number("query_pre_attn_scalar", 1e-3, 1e6).value_or(256.0);
  for (LayerSpec& layer : spec.layers) {
    layer.norm_after = true;
    layer.attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  }
  spec.names.ffn_norm = "pre_feedforward_layernorm";
}

}  // namespace

// The first release's "gelu" means the tanh variant (configuration_gemma.py, __post_init__).
ModelSpec read_gemma(const JsonFields& config) {
  Defaults defaults = gemma_defaults();
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 24576;
  defaults.n_layers = 28;
  defaults.n_heads = defaults.n_kv_heads = 16;
  const bool gelu = config.string("hidden_act").value_or("gelu") == "gelu";
  defaults.keys.activation = gelu ? "" : "hidden_act";
  ModelSpec spec = read_any_gemma(config, defaults);
  check_sliding_layers(config, spec);
  return spec;
}

ModelSpec read_gemma2(const JsonFields& config) {
  ModelSpec spec = read_any_gemma(config, gemma_defaults());
  read_second(config, spec);
  const float cap = read_cap(config, "attn_logit_softcapping", 50.0);
  for (LayerSpec& layer : spec.layers) layer.attention.softcap = cap;
  spec.logits_softcap = read_cap(config, "final_logit_softcapping", 30.0);
  read_mixed_windows(config, read_window(config, 4096), 2, spec);
  return spec;
}

ModelSpec read_gemma3(const JsonFields& config) {
  Defaults defaults = gemma_defaults();
  defaults.vocab_size = 262208;
  defaults.max_position_embeddings = 131072;
  defaults.rope.theta = 1e6;
  defaults.local_rope_theta = config.number("rope_local_base_freq", 1.0, 1e15).value_or(1e4);
  ModelSpec spec = read_any_gemma(config, defaults);
  read_second(config, spec);
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kPerHead;
  spec.logits_softcap = read_cap(config, "final_logit_softcapping", 0.0);
  const int64_t every = config.integer("sliding_window_pattern", 1, kMaxLayers).value_or(6);
  read_mixed_windows(config, read_window(config, 4096), every, spec);
  return spec;
}

// GGUF files hold the scale itself, or none: only the 27B (by its layers) scales by a size other than the
// head's. Google's quantised 1B (26 layers) also has the larger models' RoPE scaling.
void adapt_gemma(nlohmann::json& config) {
  const bool second = config["model_type"] == "gemma2";
  const nlohmann::json layers = config["num_hidden_layers"],
                       scale = config.value("attention_multiplier", nlohmann::json(0.0));
  if (!second && layers == 26) config.erase("rope_scaling");
  if (!scale.is_number()) return;
  const auto number = [&](const char* key) { return config[key].get<double>(); };
  const double wide = number("hidden_size") / number("num_attention_heads");
  const double size = layers == (second ? 46 : 62) ? wide : number("head_dim"), factor = scale;
  config["query_pre_attn_scalar"] = factor != 0.0 ? 1.0 / (factor * factor) : size;
  config.erase("attention_multiplier");
}

}  // namespace lariat
