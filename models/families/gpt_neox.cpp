#include "models/families/family.h"

namespace lariat {

// GPT-NeoX and Pythia (transformers 5.23).
ModelSpec read_gpt_neox(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 50432;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 24576;
  defaults.n_layers = 44;
  defaults.n_heads = 64;
  defaults.keys.n_kv_heads = defaults.keys.head_dim = "";
  defaults.keys.norm_eps = "layer_norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.activation = "gelu";
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 2;
  defaults.rope.partial_rotary_factor = 0.25;
  defaults.rope.theta_key = "rotary_emb_base";
  defaults.rope.partial_key = "rotary_pct";
  defaults.rope.partial_is_key = true;
  ModelSpec spec = read_decoder(config, defaults);
  if (config.integer("head_dim", 1, kMaxHeadDim).value_or(spec.rope().head_dim) != spec.rope().head_dim)
    config.fail("head_dim", "transformers uses this size for RoPE only; remove the key");
  spec.layer_norm = spec.norm_bias = true;
  const bool parallel = config.boolean("use_parallel_residual").value_or(true);
  const bool attention_bias = config.boolean("attention_bias").value_or(true);
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = parallel;
    layer.attention.qkv_bias = layer.attention.o_bias = attention_bias;
    layer.feed_forward.gated = false;
    layer.feed_forward.bias = true;
  }
  spec.names.root = "gpt_neox.";
  spec.names.embed = "embed_in";
  spec.names.norm = "final_layer_norm";
  spec.names.head = "embed_out";
  spec.names.q = spec.names.k = spec.names.v = "attention.query_key_value";
  spec.names.qkv_by_kv_head = true;
  spec.names.o = "attention.dense";
  spec.names.up = "mlp.dense_h_to_4h";
  spec.names.down = "mlp.dense_4h_to_h";
  spec.names.redundant += " .attention.bias .attention.masked_bias";  // the causal mask
  return spec;
}

}  // namespace lariat
