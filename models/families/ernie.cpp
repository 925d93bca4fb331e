#include "models/families/family.h"

namespace lariat {

// ERNIE 4.5 (transformers 5.24, models/ernie4_5, ernie4_5_moe): a Llama that rotates adjacent pairs.
namespace {

Defaults ernie_defaults() {
  Defaults defaults;
  defaults.vocab_size = 103424;
  defaults.max_position_embeddings = 131072;
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope = {.theta = 5e5, .interleaved = true};
  return defaults;
}

}  // namespace

ModelSpec read_ernie(const JsonFields& config) {
  Defaults defaults = ernie_defaults();
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 3072;
  defaults.n_layers = 18;
  defaults.n_heads = 16;
  defaults.n_kv_heads = 2;
  defaults.head_dim = config.present("head_dim") ? 0 : 128;  // null: hidden_size / heads
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  const bool bias = config.boolean("use_bias").value_or(false);
  for (LayerSpec& layer : spec.layers)
    layer.attention.qkv_bias = layer.attention.o_bias = layer.feed_forward.bias = bias;
  return spec;
}

ModelSpec read_ernie_moe(const JsonFields& config) {
  Defaults defaults = ernie_defaults();
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 12288;
  defaults.n_layers = 28;
  defaults.n_heads = 20;
  defaults.n_kv_heads = 4;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  if (config.boolean("use_bias").value_or(false))
    config.fail("use_bias", "a bias of the logits is not supported; use a model without biases");
  ExpertsSpec experts;
  experts.n = config.integer("moe_num_experts", 1, kMaxExperts).value_or(64);
  experts.intermediate_size = config.integer("moe_intermediate_size", 1, kMaxIntermediate).value_or(1536);
  experts.router.n_chosen = config.integer("moe_k", 1, experts.n).value_or(6);
  experts.router.normalise = experts.choice_bias = true;
  const int64_t shared = config.integer("moe_num_shared_experts", 0, kMaxExperts).value_or(2);
  const int64_t every = config.integer("moe_layer_interval", 1, kMaxLayers).value_or(1);
  const int64_t first = config.integer("moe_layer_start_index", 0, kMaxLayers).value_or(1);
  int64_t last = config.integer("moe_layer_end_index", -1, kMaxLayers).value_or(-1);
  if (last == -1) last = kMaxLayers;
  for (int64_t i = first; i < std::ssize(spec.layers) && i <= last; ++i) {
    if ((i + 1) % every == 0) use_experts(experts, shared, spec.layers[static_cast<size_t>(i)]);
  }
  for (const char* unused :
       {"moe_norm_min", "moe_capacity", "moe_gate", "moe_use_aux_free", "num_nextn_predict_layers"})
    config.mark_read(unused);
  spec.names.choice_bias = "mlp.moe_statics.e_score_correction_bias";
  return spec;
}

void adapt_ernie(nlohmann::json& config) {
  config["use_bias"] = config["attention_bias"];
  config.erase("attention_bias");
  config.erase("mlp_bias");
}

void adapt_ernie_moe(nlohmann::json& config) {
  adapt_ernie(config);
  for (const auto& [from, to] : {std::pair("num_local_experts", "moe_num_experts"),
                                 {"num_experts_per_tok", "moe_k"},
                                 {"n_shared_experts", "moe_num_shared_experts"},
                                 {"first_k_dense_replace", "moe_layer_start_index"},
                                 {"ernie4_5-moe.interleave_moe_layer_step", "moe_layer_interval"}}) {
    if (config.contains(from)) config[to] = config[from];
    config.erase(from);
  }
}

}  // namespace lariat
