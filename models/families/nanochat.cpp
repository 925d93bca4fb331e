#include "models/families/family.h"

namespace lariat {

// nanochat (transformers 5.24, models/nanochat): norms without weights, also after the embedding, squared
// ReLU, capped logits. RoPE rotates backwards, which equals plain RoPE with swapped halves of q and k.
ModelSpec read_nanochat(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 50304;
  defaults.hidden_size = 768;
  defaults.intermediate_size = 8192;
  defaults.n_layers = 12;
  defaults.n_heads = 6;
  defaults.activation = "relu2";
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 1;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  const double missing = config.present("final_logit_softcapping") ? 0.0 : 15.0;  // null: none
  const double cap = config.number("final_logit_softcapping", 1e-3, 1e6).value_or(missing);
  spec.logits_softcap = static_cast<float>(cap);
  spec.unit_norms = spec.embedding_norm = true;
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::kAfterRope;
    layer.feed_forward.gated = false;
  }
  spec.names.swapped_halves = true;
  spec.names.up = "mlp.fc1";
  spec.names.down = "mlp.fc2";
  return spec;
}

}  // namespace lariat
