#include "models/families/family.h"
#include "models/families/tokenizers.h"

namespace lariat {

// configuration_chatglm.py and modeling_chatglm.py of THUDM/chatglm2-6b-32k, chatglm3-6b and glm-4-9b.
ModelSpec read_chatglm(const JsonFields& config) {
  const auto only = [&](const char* key, bool is_so,
                        const char* what = "only ChatGLM2 and later are supported") {
    if (!is_so) config.fail(key, std::string(what) + "; use another model");
  };
  only("position_encoding_2d", !config.boolean("position_encoding_2d").value_or(false),
       "the first ChatGLM, with two-part positions, is not supported");
  for (const char* key : {"rmsnorm", "post_layer_norm"}) only(key, config.boolean(key).value_or(true));
  for (const char* key : {"apply_residual_connection_post_layernorm", "add_bias_linear"})
    only(key, !config.boolean(key).value_or(false));
  for (const char* key : {"pre_seq_len", "quantization_bit", "inner_hidden_size"})
    only(key, config.integer(key, 0, kMaxContext).value_or(0) == 0);
  const bool grouped = config.boolean("multi_query_attention").value_or(false);
  Defaults defaults;
  defaults.keys = {.vocab_size = "padded_vocab_size", .intermediate_size = "ffn_hidden_size"};
  defaults.keys.n_layers = "num_layers";
  defaults.keys.max_position_embeddings = "seq_length";
  defaults.keys.norm_eps = "layernorm_epsilon";
  defaults.keys.n_kv_heads = grouped ? "multi_query_group_num" : "";
  defaults.keys.head_dim = "kv_channels";
  defaults.keys.activation = "";
  defaults.vocab_size = 65024;
  defaults.intermediate_size = 13696;
  defaults.n_layers = 28;
  defaults.n_kv_heads = grouped ? 1 : 0;
  defaults.head_dim = 128;
  defaults.norm_eps = 1e-5;
  const double ratio = config.number("rope_ratio", 1.0, 1e6).value_or(1.0);
  // ChatGLM2 divides positions by rope_ratio; later models multiply the RoPE base.
  const bool second = tok::has_version(config, tok::kChatGlm2), divides = ratio != 1.0 && second;
  defaults.rope = {.theta = divides ? 1e4 : 1e4 * ratio,
                   .partial_rotary_factor = 0.5,
                   .interleaved = true,
                   .partial_is_key = true};
  defaults.rope.theta_key = defaults.rope.partial_key = "";
  ModelSpec spec = read_decoder(config, defaults);
  if (divides) spec.rope() = rope_of_type(spec.rope(), RopeType::kLinear);
  if (divides) spec.rope().factor = ratio;
  for (const int32_t id : {64795, 64797}) {  // ChatGLM3 ends a turn with <|user|> or <|observation|>
    if (!second && spec.vocab_size == 65024) spec.eos_token_ids.push_back(id);
  }
  const bool bias = config.boolean("add_qkv_bias").value_or(false);
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = bias;
  for (const char* key : {"apply_query_key_layer_scaling", "original_rope", "fp32_residual_connection",
                          "multi_query_group_num"})
    config.mark_read(key);
  TensorNames& names = spec.names;
  names.root = "transformer.";
  names.embed = "embedding.word_embeddings";
  names.norm = "encoder.final_layernorm";
  names.head = "transformer.output_layer";
  names.layer = "encoder.layers.{}.";
  names.q = names.k = names.v = "self_attention.query_key_value";
  names.qkv_by_kv_head = !grouped;
  names.o = "self_attention.dense";
  names.gate = names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  names.redundant += " rotary_pos_emb.inv_freq";
  return spec;
}

}  // namespace lariat
