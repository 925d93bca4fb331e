#include <cmath>

#include "models/families/family.h"

namespace lariat {

// modeling_qwen.py of Qwen/Qwen-7B. Its NTK is `dynamic` with factor 2 and one scale step m per octave:
// 2^ceil(log2(n / seq_length) + 1) - 1 is 2 m / seq_length - 1.
ModelSpec read_qwen(const JsonFields& config) {
  const int64_t trained = config.need_integer("seq_length", 1, kMaxContext);
  Defaults defaults;
  KeyNames& keys = defaults.keys;
  keys = {"vocab_size padded_vocab_size", "hidden_size n_embd", "intermediate_size ffn_hidden_size"};
  keys.n_layers = "num_hidden_layers n_layer";
  keys.n_heads = "num_attention_heads n_head";
  keys.max_position_embeddings = "seq_length";
  keys.norm_eps = "layer_norm_epsilon";
  keys.head_dim = "kv_channels";
  keys.n_kv_heads = keys.activation = "";
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.head_dim = 128;
  defaults.rope = {.partial_is_key = true, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"};
  ModelSpec spec = read_decoder(config, defaults);
  for (const char* key :
       {"bf16", "fp16", "fp32", "use_flash_attn", "softmax_in_fp32", "params_dtype", "pos_emb", "n_positions",
        "tokenizer_type", "use_cache_quantization", "use_cache_kernel"})
    config.mark_read(key);
  const auto only = [&](const char* key, bool is_so) {
    if (!is_so) config.fail(key, "only the published models' value is supported; use another model");
  };
  only("scale_attn_weights", config.boolean("scale_attn_weights").value_or(true));
  only("activation", config.string("activation").value_or("swiglu") == "swiglu");
  RopeScaling& rope = spec.rope();
  if (rope.type == RopeType::kDefault && config.boolean("use_dynamic_ntk").value_or(true)) {
    rope = rope_of_type(rope, RopeType::kDynamic);
    rope.factor = 2.0;
    rope.own_steps = 1;
  }
  rope.max_position_embeddings = rope.original_ctx = trained;
  if (config.boolean("use_logn_attn").value_or(true)) {  // ln(p + 1) / ln(seq_length) beyond seq_length
    if (trained < 2) config.fail("seq_length", "expected at least 2, for logarithmic query scaling");
    spec.query_scale = {1.0 / std::log(static_cast<double>(trained)), trained, false};
  }
  const bool biases = !config.boolean("no_bias").value_or(true);
  for (LayerSpec& layer : spec.layers) {
    only("intermediate_size", layer.feed_forward.intermediate_size % 2 == 0);  // gate and up together
    layer.feed_forward.intermediate_size /= 2;
    layer.attention.qkv_bias = true;
    layer.attention.o_bias = layer.feed_forward.bias = biases;
  }
  TensorNames& names = spec.names;
  use_gpt2_names(names);
  names.q = names.k = names.v = "attn.c_attn";
  names.o = "attn.c_proj";
  names.gate = "mlp.w2";
  names.up = "mlp.w1";
  names.down = "mlp.c_proj";
  return spec;
}

// A GGUF file has neither the names nor seq_length: llama.cpp runs it as a Qwen 2.
void adapt_qwen(nlohmann::json& config) {
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["model_type"] = "qwen2";
  config["intermediate_size"] = config["intermediate_size"].get<int64_t>() / 2;  // gate and up together
}

}  // namespace lariat
