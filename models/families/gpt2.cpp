#include "models/families/family.h"

// GPT-2, and GPTBigCode: SantaCoder and StarCoder 1 (transformers 5.24, models/gpt2, models/gpt_bigcode):
// learned positions, LayerNorms, biases everywhere.
namespace lariat {
namespace {

ModelSpec read_any_gpt2(const JsonFields& config, const char* activation) {
  Defaults defaults;
  KeyNames& keys = defaults.keys;
  keys = {"vocab_size", "n_embd hidden_size", "n_inner", "n_layer num_hidden_layers"};
  keys.n_heads = "n_head num_attention_heads";
  keys.max_position_embeddings = "n_positions max_position_embeddings";
  keys.norm_eps = "layer_norm_epsilon";
  keys.activation = "activation_function";
  keys.n_kv_heads = keys.head_dim = "";
  defaults.vocab_size = 50257;
  defaults.hidden_size = 768;
  defaults.intermediate_size = 0;
  defaults.n_layers = defaults.n_heads = 12;
  defaults.max_position_embeddings = 1024;
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = defaults.eos_token_id = 50256;
  defaults.activation = activation;
  defaults.has_rope = false;
  ModelSpec spec = read_decoder(config, defaults);
  spec.layer_norm = spec.norm_bias = spec.learned_positions = true;
  const bool scaled = config.boolean("scale_attn_weights").value_or(true);
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = layer.attention;
    attention.rope = -1;
    attention.qkv_bias = attention.o_bias = layer.feed_forward.bias = true;
    layer.feed_forward.gated = false;
    if (!scaled) attention.scale = 1.0F;
  }
  TensorNames& names = spec.names;
  use_gpt2_names(names);
  names.q = names.k = names.v = "attn.c_attn";
  names.o = "attn.c_proj";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  names.redundant += " .attn.bias .attn.masked_bias";  // the causal mask
  return spec;
}

}  // namespace

ModelSpec read_gpt2(const JsonFields& config) {
  ModelSpec spec = read_any_gpt2(config, "gelu_new");
  if (config.boolean("scale_attn_by_inverse_layer_idx").value_or(false)) {
    for (size_t i = 0; i < spec.layers.size(); ++i)
      spec.layers[i].attention.scale /= static_cast<float>(i + 1);
  }
  // The second only changes the order of computation.
  for (const char* unused : {"n_ctx", "reorder_and_upcast_attn"}) config.mark_read(unused);
  return spec;
}

ModelSpec read_gpt_bigcode(const JsonFields& config) {
  ModelSpec spec = read_any_gpt2(config, "gelu_pytorch_tanh");
  const bool one_kv_head = config.boolean("multi_query").value_or(true);
  for (LayerSpec& layer : spec.layers)
    if (one_kv_head) layer.attention.n_kv_heads = 1;
  spec.names.qkv_by_kv_head = !one_kv_head;
  for (const char* unused : {"inference_runner", "max_batch_size", "pad_key_length", "pre_allocate_kv_cache",
                             "scale_attention_softmax_in_fp32", "validate_runner_input"})
    config.mark_read(unused);
  return spec;
}

void adapt_gpt2(nlohmann::json& config) {
  config["n_inner"] = config["intermediate_size"];
  config["layer_norm_epsilon"] = config["layer_norm_eps"];
  for (const char* key : {"intermediate_size", "layer_norm_eps", "num_key_value_heads", "head_dim",
                          "attention_bias", "mlp_bias", "use_parallel_residual", "rope_theta"})
    config.erase(key);
}

}  // namespace lariat
