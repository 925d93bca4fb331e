#include "models/families/family.h"

// InternLM 1, 2 and 2.5: configuration_*.py and modeling_*.py of the published files.
namespace lariat {
namespace {

Defaults internlm_defaults() {
  Defaults defaults;
  defaults.keys.head_dim = "";
  defaults.vocab_size = 103168;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  return defaults;
}

}  // namespace

// `rotary` describes the RoPE: "origin", or "dynamic" (default).
ModelSpec read_internlm(const JsonFields& config) {
  Defaults defaults = internlm_defaults();
  defaults.keys.n_kv_heads = "";
  ModelSpec spec = read_decoder(config, defaults);
  const bool bias = config.boolean("bias").value_or(true);
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = layer.attention.o_bias = bias;
  check_sliding_layers(config, spec);
  std::string type = "dynamic";
  double factor = 1.0;
  if (const auto rotary = config.object("rotary")) {
    type = rotary->string("type").value_or(type);
    if (type != "origin" && type != "dynamic") rotary->fail("type", "expected origin or dynamic");
    spec.rope().theta = rotary->number("base", 1.0, 1e15).value_or(spec.rope().theta);
    factor = rotary->number("scaling_factor", 1.0, 1e6).value_or(1.0);
  }
  if (type == "dynamic" && spec.rope().type == RopeType::kDefault) {
    spec.rope() = rope_of_type(spec.rope(), RopeType::kDynamic);
    spec.rope().factor = factor;
  }
  return spec;
}

ModelSpec read_internlm2(const JsonFields& config) {
  ModelSpec spec = read_decoder(config, internlm_defaults());
  if (config.boolean("bias").value_or(true))
    config.fail("bias", "biases of fused projections are not supported; use a model without biases");
  check_sliding_layers(config, spec);
  TensorNames& names = spec.names;
  names.embed = "tok_embeddings";
  names.head = "output";
  names.attention_norm = "attention_norm";
  names.ffn_norm = "ffn_norm";
  names.q = names.k = names.v = "attention.wqkv";
  names.qkv_by_kv_head = true;
  names.o = "attention.wo";
  names.gate = "feed_forward.w1";
  names.up = "feed_forward.w3";
  names.down = "feed_forward.w2";
  return spec;
}

}  // namespace lariat
