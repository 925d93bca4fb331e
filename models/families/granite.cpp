#include <algorithm>
#include <cmath>

#include "models/families/family.h"

namespace lariat {

namespace {

void read_multipliers(const JsonFields& config, ModelSpec& spec) {
  const auto multiplier = [&](const char* key, double least) {
    return config.number(key, least, 1e6).value_or(1.0);
  };
  spec.embedding_multiplier = static_cast<float>(multiplier("embedding_multiplier", 0.0));
  spec.logits_multiplier = static_cast<float>(1.0 / multiplier("logits_scaling", 1e-6));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale = static_cast<float>(multiplier("attention_multiplier", 0.0));
    layer.residual_multiplier = static_cast<float>(multiplier("residual_multiplier", 0.0));
  }
}

}  // namespace

// Granite 3: a Llama with four multipliers (transformers 5.23, models/granite).
ModelSpec read_granite(const JsonFields& config) {
  ModelSpec spec = read_llama(config);
  read_multipliers(config, spec);
  return spec;
}

// Granite 4 without Mamba layers and routed experts (models/granitemoehybrid).
ModelSpec read_granite_hybrid(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.intermediate_size = "shared_intermediate_size";
  defaults.intermediate_size = 1024;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  read_multipliers(config, spec);
  for (const std::string& key : config.keys()) {
    if (key.starts_with("mamba_")) config.mark_read(key);
  }
  const char* only = "only layers of attention without experts are supported; use another model";
  const auto types = config.strings("layer_types");
  const auto attends = [](const std::string& type) {
    return type == "attention" || type == "full_attention";
  };
  if (!types || !std::ranges::all_of(*types, attends)) config.fail("layer_types", only);
  check_sliding_layers(config, spec);
  if (config.integer("num_local_experts", 0, kMaxExperts).value_or(8) != 0)
    config.fail("num_local_experts", only);
  for (const char* unused : {"num_experts_per_tok", "normalization_function", "init_method"})
    config.mark_read(unused);
  const bool rope = config.string("position_embedding_type").value_or("") == "rope";
  for (LayerSpec& layer : spec.layers) layer.attention.rope = rope ? 0 : -1;
  spec.names.gate = spec.names.up = "shared_mlp.input_linear";
  spec.names.down = "shared_mlp.output_linear";
  return spec;
}

// Granite 3 with experts (models/granitemoe).
ModelSpec read_granite_moe(const JsonFields& config) {
  Defaults defaults;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  check_sliding_layers(config, spec);
  read_multipliers(config, spec);
  use_mixtral_experts(config, spec);
  spec.names.router = "block_sparse_moe.router.layer";
  spec.names.expert_gate_up = "block_sparse_moe.input_linear";
  spec.names.expert_gate = "block_sparse_moe.{}.gate";  // GGUF files alone split gate and up
  spec.names.expert_up = "block_sparse_moe.{}.up";
  spec.names.expert_down = "block_sparse_moe.{}.output_linear";
  spec.names.shared_gate_up = "shared_mlp.input_linear";
  spec.names.shared_down = "shared_mlp.output_linear";
  return spec;
}

ModelSpec read_granite_moe_shared(const JsonFields& config) {
  ModelSpec spec = read_granite_moe(config);
  const int64_t size = config.integer("shared_intermediate_size", 0, kMaxIntermediate).value_or(0);
  for (LayerSpec& layer : spec.layers) layer.feed_forward.intermediate_size = size;
  return spec;
}

void adapt_granite(nlohmann::json& config) {
  if (config.value("attention_multiplier", nlohmann::json(0)) == 0)
    config["attention_multiplier"] = 1.0 / std::sqrt(config["head_dim"].get<double>());
}

void adapt_granite_moe(nlohmann::json& config) {
  adapt_granite(config);
  adapt_mixtral(config);
}

}  // namespace lariat
