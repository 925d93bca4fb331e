#include "models/families/family.h"
#include "models/spec/gate.h"

// Families with ALiBi, LayerNorms and an ungated feed-forward: BLOOM and MPT (transformers 5.24).
namespace lariat {
namespace {

Defaults alibi_defaults() {
  Defaults defaults;
  defaults.intermediate_size = 0;
  defaults.keys.intermediate_size = defaults.keys.n_kv_heads = defaults.keys.head_dim = "";
  defaults.keys.activation = "";
  defaults.has_rope = false;
  defaults.keys.norm_eps = "layer_norm_epsilon";
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  return defaults;
}

ModelSpec read_any_alibi(const JsonFields& config, const Defaults& defaults) {
  ModelSpec spec = read_decoder(config, defaults);
  spec.layer_norm = true;
  for (LayerSpec& layer : spec.layers) layer.feed_forward.gated = false;
  spec.names.root = "transformer.";
  return spec;
}

void refuse_other(const JsonFields& config, const char* key, bool other) {
  if (other) config.fail(key, "only the published models' value is supported; use another model");
}

}  // namespace

ModelSpec read_bloom(const JsonFields& config) {
  Defaults defaults = alibi_defaults();
  defaults.vocab_size = 250880;
  defaults.hidden_size = 64;
  defaults.n_layers = 2;
  defaults.n_heads = 8;
  defaults.keys.hidden_size = "n_embed hidden_size";
  defaults.keys.n_layers = "num_hidden_layers n_layer";
  defaults.keys.n_heads = "num_attention_heads n_head";
  defaults.keys.max_position_embeddings = "seq_length";
  defaults.activation = "gelu_pytorch_tanh";
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_any_alibi(config, defaults);
  spec.norm_bias = spec.embedding_norm = true;
  for (LayerSpec& layer : spec.layers)
    layer.attention.qkv_bias = layer.attention.o_bias = layer.feed_forward.bias = true;
  use_alibi(8.0, spec);
  spec.names.embed = "word_embeddings";
  spec.names.embedding_norm = "word_embeddings_layernorm";
  spec.names.norm = "ln_f";
  spec.names.layer = "h.{}.";
  spec.names.q = spec.names.k = spec.names.v = "self_attention.query_key_value";
  spec.names.qkv_by_kv_head = true;
  spec.names.o = "self_attention.dense";
  spec.names.up = "mlp.dense_h_to_4h";
  spec.names.down = "mlp.dense_4h_to_h";
  return spec;
}

ModelSpec read_mpt(const JsonFields& config) {
  Defaults defaults = alibi_defaults();
  defaults.vocab_size = 50368;
  defaults.hidden_size = 2048;
  defaults.n_layers = 24;
  defaults.n_heads = 16;
  defaults.keys.hidden_size = "hidden_size d_model";
  defaults.keys.n_layers = "num_hidden_layers n_layers";
  defaults.keys.n_heads = "num_attention_heads n_heads";
  defaults.keys.max_position_embeddings = "max_seq_len";
  defaults.activation = "gelu";
  ModelSpec spec = read_any_alibi(config, defaults);
  refuse_other(config, "expansion_ratio", config.integer("expansion_ratio", 1, 1000).value_or(4) != 4);
  refuse_other(config, "no_bias", !config.boolean("no_bias").value_or(true));
  double bias_max = 8.0;
  if (const auto attention = config.object("attn_config")) {
    bias_max = attention->number("alibi_bias_max", 0.0, 1e6).value_or(bias_max);
    if (const auto scale = attention->number("softmax_scale", 0.0, 1e6)) {
      for (LayerSpec& layer : spec.layers) layer.attention.scale = static_cast<float>(*scale);
    }
    refuse_other(*attention, "alibi", !attention->boolean("alibi").value_or(true));
    for (const char* key : {"qk_ln", "prefix_lm", "rope"})
      refuse_other(*attention, key, attention->boolean(key).value_or(false));
    const double clip = attention->number("clip_qkv", 0.0, 1e6).value_or(0.0);
    for (LayerSpec& layer : spec.layers) layer.attention.clip = static_cast<float>(clip);
    const std::string type = attention->string("attn_type").value_or("multihead_attention");
    refuse_other(*attention, "attn_type", type != "multihead_attention");
    check_unread(*attention, spec, &spec.warnings);
  }
  use_alibi(bias_max, spec);
  spec.names.embed = "wte";
  spec.names.norm = "norm_f";
  spec.names.layer = "blocks.{}.";
  spec.names.attention_norm = "norm_1";
  spec.names.ffn_norm = "norm_2";
  spec.names.q = spec.names.k = spec.names.v = "attn.Wqkv";
  spec.names.o = "attn.out_proj";
  spec.names.up = "ffn.up_proj";
  spec.names.down = "ffn.down_proj";
  return spec;
}

}  // namespace lariat
