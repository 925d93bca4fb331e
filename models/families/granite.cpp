#include <cmath>

#include "models/families/family.h"

namespace lariat {

// Granite 3: a Llama with four multipliers (transformers 5.23, models/granite).
ModelSpec read_granite(const JsonFields& config) {
  ModelSpec spec = read_llama(config);
  const auto multiplier = [&](const char* key, double least) {
    return config.number(key, least, 1e6).value_or(1.0);
  };
  spec.embedding_multiplier = static_cast<float>(multiplier("embedding_multiplier", 0.0));
  spec.logits_multiplier = static_cast<float>(1.0 / multiplier("logits_scaling", 1e-6));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale = static_cast<float>(multiplier("attention_multiplier", 0.0));
    layer.residual_multiplier = static_cast<float>(multiplier("residual_multiplier", 0.0));
  }
  return spec;
}

void adapt_granite(nlohmann::json& config) {
  if (config.value("attention_multiplier", nlohmann::json(0)) == 0)
    config["attention_multiplier"] = 1.0 / std::sqrt(config["head_dim"].get<double>());
}

}  // namespace lariat
