#include "models/families/family.h"

namespace lariat {

// EXAONE 3 and 3.5: a Llama under GPT-2's names (transformers 5.24, models/exaone).
ModelSpec read_exaone(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.n_layers = "num_layers num_hidden_layers";
  defaults.keys.norm_eps = "layer_norm_epsilon rms_norm_eps";
  defaults.keys.activation = config.has("activation_function") ? "activation_function" : "hidden_act";
  defaults.vocab_size = 102400;
  defaults.intermediate_size = 14336;
  defaults.n_kv_heads = 8;
  defaults.max_position_embeddings = 4096;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 361;
  defaults.rope.theta = 5e5;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/true, spec);
  check_sliding_layers(config, spec);
  TensorNames& names = spec.names;
  use_gpt2_names(names);
  names.q = "attn.attention.q_proj";
  names.k = "attn.attention.k_proj";
  names.v = "attn.attention.v_proj";
  names.o = "attn.attention.out_proj";
  names.gate = "mlp.c_fc_0";
  names.up = "mlp.c_fc_1";
  names.down = "mlp.c_proj";
  names.redundant += " rotary.inv_freq";
  return spec;
}

// A GGUF file has no trace of the names.
void adapt_exaone(nlohmann::json& config) {
  config["architectures"] = {"LlamaForCausalLM"};
  config["model_type"] = "llama";
}

// EXAONE 4: norms after attention and feed-forward. With windows, full layers have no RoPE (models/exaone4).
ModelSpec read_exaone4(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 102400;
  defaults.intermediate_size = 16384;
  defaults.n_kv_heads = 32;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  const int64_t window = read_window(config, 4096);
  if (window == 0 || config.has("layer_types")) config.mark_read("sliding_window_pattern");
  if (window == 0) {
    check_sliding_layers(config, spec);
  } else {
    const bool listed = config.has("layer_types");
    read_mixed_windows(config, window,
                       listed ? 1 : config.integer("sliding_window_pattern", 1, kMaxLayers).value_or(4),
                       spec);
  }
  for (LayerSpec& layer : spec.layers) {
    layer.norm_before = false;
    layer.norm_after = true;
    layer.attention.qk_norm = QkNorm::kPerHead;
    if (window != 0 && layer.attention.sliding_window == 0) layer.attention.rope = -1;
  }
  return spec;
}

}  // namespace lariat
