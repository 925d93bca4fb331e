#include "models/families/family.h"

namespace lariat {

void use_mixtral_experts(const JsonFields& config, ModelSpec& spec) {
  ExpertsSpec experts;
  experts.n = config.integer("num_local_experts", 1, kMaxExperts).value_or(8);
  experts.intermediate_size = spec.layers.front().feed_forward.intermediate_size;
  experts.router.n_chosen = config.integer("num_experts_per_tok", 1, experts.n).value_or(2);
  experts.router.normalise = true;
  for (LayerSpec& layer : spec.layers) use_experts(experts, 0, layer);
}

// Mixtral: a Mistral with experts whose weights sum to one (transformers 5.23).
ModelSpec read_mixtral(const JsonFields& config) {
  Defaults defaults;
  defaults.intermediate_size = 14336;
  defaults.n_kv_heads = 8;
  defaults.max_position_embeddings = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope.theta = 1e6;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  read_one_window(config, 0, spec);
  use_mixtral_experts(config, spec);
  spec.names.router = "block_sparse_moe.gate";
  spec.names.expert_gate = "block_sparse_moe.experts.{}.w1";
  spec.names.expert_up = "block_sparse_moe.experts.{}.w3";
  spec.names.expert_down = "block_sparse_moe.experts.{}.w2";
  return spec;
}

void adapt_mixtral(nlohmann::json& config) {
  if (!config.contains("moe_intermediate_size")) return;
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.erase("moe_intermediate_size");
}

}  // namespace lariat
