#include "models/families/family.h"

namespace lariat {

// Apertus (transformers 5.24, models/apertus): norms of q and k per head, an ungated feed-forward with xIELU.
ModelSpec read_apertus(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.activation = "";
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 14336;
  defaults.max_position_embeddings = 65536;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.theta = 1.2e7;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  if (config.string("hidden_act").value_or("xielu") != "xielu")
    config.fail("hidden_act", "only xielu is supported in this architecture; use another model");
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::kPerHead;
    layer.feed_forward.activation = Activation::kXielu;
    layer.feed_forward.gated = false;
  }
  if (rope_object(config).keys().empty()) {  // ApertusConfig.__post_init__
    RopeScaling& rope = spec.rope();
    rope = rope_of_type(rope, RopeType::kLlama3);
    rope.factor = 8.0;
    rope.original_ctx = 8192;
  }
  spec.names.attention_norm = "attention_layernorm";
  spec.names.ffn_norm = "feedforward_layernorm";
  return spec;
}

void adapt_apertus(nlohmann::json& config) {
  config.emplace("rope_scaling", nlohmann::json{{"rope_type", "default"}});
}

}  // namespace lariat
