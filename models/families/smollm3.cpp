#include "kernels/counted.h"
#include "models/families/family.h"

namespace lariat {

// SmolLM3 (transformers 5.23). Layers without RoPE may have a window.
ModelSpec read_smollm3(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2048;
  defaults.n_layers = 36;
  defaults.n_heads = 16;
  defaults.n_kv_heads = 4;
  defaults.max_position_embeddings = 32768;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 128000;
  defaults.eos_token_id = 128001;
  defaults.rope.theta = 2e6;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/true, spec);

  const auto n_layers = static_cast<int64_t>(spec.layers.size());
  const int64_t every = config.integer("no_rope_layer_interval", 1, kMaxLayers).value_or(4);
  const auto with_rope = config.integers("no_rope_layers", 0, 1);  // 1: the layer has RoPE
  if (with_rope && static_cast<int64_t>(with_rope->size()) != n_layers)
    config.fail("no_rope_layers", "expected a 0 or 1 for each layer, " + counted(n_layers, "number"));
  for (int64_t i = 0; i < n_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const bool rope = with_rope ? with_rope->at(layer) == 1 : (i + 1) % every != 0;
    if (!rope) spec.layers[layer].attention.rope = -1;
  }

  const int64_t given = read_window(config, 0);
  const int64_t window = config.boolean("use_sliding_window").value_or(false) ? given : 0;
  const std::vector<bool> sliding = read_sliding_layers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    const bool slides = sliding.empty() ? attention.rope < 0 : sliding[i];
    attention.sliding_window = slides ? window : 0;
  }
  return spec;
}

}  // namespace lariat
