#include "models/families/family.h"

// OLMo 2 and 3 (transformers 5.23): norms only after attention and feed-forward; q and k norms over all
// heads.
namespace lariat {
namespace {

ModelSpec read_olmo(const JsonFields& config, Defaults defaults) {
  defaults.vocab_size = 50304;
  defaults.norm_eps = 1e-5;
  defaults.eos_token_id = 50279;
  ModelSpec spec = read_decoder(config, defaults);
  if (config.boolean("attention_bias").value_or(false))
    config.fail("attention_bias", "biases before these norms are not supported; use a model without biases");
  for (LayerSpec& layer : spec.layers) {
    layer.norm_before = false;
    layer.norm_after = true;
    layer.attention.qk_norm = QkNorm::kAllHeads;
  }
  return spec;
}

}  // namespace

ModelSpec read_olmo2(const JsonFields& config) {
  ModelSpec spec = read_olmo(config, Defaults());
  check_sliding_layers(config, spec);
  return spec;
}

// Only layers without a window are scaled.
ModelSpec read_olmo3(const JsonFields& config) {
  Defaults defaults;
  defaults.rope.theta = 5e5;
  defaults.local_rope_theta = 5e5;  // independent of "rope_theta" (convert_rope_params_to_dict)
  ModelSpec spec = read_olmo(config, defaults);
  read_mixed_windows(config, read_window(config, 4096), 4, spec);
  return spec;
}

}  // namespace lariat
