#include <cmath>

#include "models/families/family.h"

namespace lariat {

// null disables a multiplier; a missing key has a default.
void read_minicpm_multipliers(const JsonFields& config, double scale_emb, double dim_model_base,
                              double scale_depth, ModelSpec& spec) {
  const auto multiplier = [&](const char* key, double missing, double none) {
    return config.number(key, 1e-6, 1e6).value_or(config.present(key) ? none : missing);
  };
  const auto hidden = static_cast<double>(spec.hidden_size),
             n_layers = static_cast<double>(spec.layers.size());
  spec.embedding_multiplier = static_cast<float>(multiplier("scale_emb", scale_emb, 1.0));
  spec.logits_multiplier = static_cast<float>(multiplier("dim_model_base", dim_model_base, hidden) / hidden);
  for (LayerSpec& layer : spec.layers)
    layer.residual_multiplier =
        static_cast<float>(multiplier("scale_depth", scale_depth, std::sqrt(n_layers)) / std::sqrt(n_layers));
}

// MiniCPM 1 and 2 (configuration_minicpm.py of openbmb/MiniCPM-2B-sft-bf16).
ModelSpec read_minicpm(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.head_dim = "";
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  check_sliding_layers(config, spec);
  read_minicpm_multipliers(config, 1.0, 1.0, 1.0, spec);
  config.mark_read("mup_denominator");
  return spec;
}

// Files before 2024-12 lack the multipliers (llama.cpp, src/models/minicpm.cpp).
void adapt_minicpm(nlohmann::json& config) {
  const auto take = [&](const char* key, double missing) {
    const double value = config.value(key, missing);
    config.erase(key);
    return value != 0.0 ? value : missing;
  };
  const double layers = std::sqrt(config["num_hidden_layers"].get<double>()), hidden = config["hidden_size"];
  config["scale_emb"] = take("embedding_multiplier", 12.0);
  config["scale_depth"] = take("residual_multiplier", 1.4 / layers) * layers;
  config["dim_model_base"] = hidden / take("logits_scaling", hidden / 256.0);
  config.erase("head_dim");
}

}  // namespace lariat
