#include "models/families/family.h"

// Qwen 2, 2.5, 3 and the text side of 2-VL (transformers 5.23, models/qwen2/configuration_qwen2.py,
// models/qwen3/configuration_qwen3.py, models/qwen2_vl/configuration_qwen2_vl.py).
namespace lariat {
namespace {

Defaults qwen_defaults() {
  Defaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.n_kv_heads = 32;
  defaults.max_position_embeddings = 32768;
  return defaults;
}

// Sliding layers are those of layer_types, or those from max_window_layers on; only with use_sliding_window.
void read_windows(const JsonFields& config, ModelSpec& spec) {
  int64_t window = read_window(config, 4096);
  if (!config.boolean("use_sliding_window").value_or(false)) window = 0;
  const auto first = static_cast<size_t>(config.integer("max_window_layers", 0, kMaxLayers).value_or(28));
  const std::vector<bool> sliding = read_sliding_layers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool slides = sliding.empty() ? i >= first : sliding[i];
    if (slides && !sliding.empty() && window == 0) {
      config.fail("layer_types", "entry " + std::to_string(i) + " slides, and use_sliding_window or " +
                                     "sliding_window says that no layer does (transformers fails on it); " +
                                     "correct one of them");
    }
    spec.layers[i].attention.sliding_window = slides ? window : 0;
  }
}

// Always with biases of q, k and v, and of nothing else.
ModelSpec read_with_biases(const JsonFields& config, const Defaults& defaults) {
  ModelSpec spec = read_decoder(config, defaults);
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = true;
  read_windows(config, spec);
  return spec;
}

}  // namespace

ModelSpec read_qwen2(const JsonFields& config) { return read_with_biases(config, qwen_defaults()); }

// The text side of Qwen 2-VL and 2.5-VL: in text the three positions of M-RoPE are one, and it is RoPE.
ModelSpec read_qwen2_vl(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.vocab_size = 152064;
  defaults.norm_eps = 1e-5;
  return read_with_biases(config, defaults);
}

// With norms over the heads of q and k.
ModelSpec read_qwen3(const JsonFields& config) {
  Defaults defaults = qwen_defaults();
  defaults.head_dim = 128;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kPerHead;
  read_windows(config, spec);
  return spec;
}

}  // namespace lariat
