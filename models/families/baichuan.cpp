#include "models/families/family.h"

namespace lariat {

// Baichuan-7B, first version (configuration_baichuan.py).
ModelSpec read_baichuan(const JsonFields& config) {
  Defaults defaults;
  defaults.keys.n_kv_heads = defaults.keys.head_dim = "";
  defaults.vocab_size = 64000;
  defaults.max_position_embeddings = 4096;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  // llama.cpp's converter splits the projection.
  if (!config.boolean("split_qkv").value_or(false))
    spec.names.q = spec.names.k = spec.names.v = "self_attn.W_pack";
  return spec;
}

// Baichuan 2 7B (modeling_baichuan.py, NormHead), and later files of the first version, with 64000 tokens.
ModelSpec read_baichuan_2(const JsonFields& config) {
  if (!config.has("max_position_embeddings") || config.integer("num_hidden_layers", 1, kMaxLayers) == 40)
    config.fail("max_position_embeddings", "Baichuan-13B, with ALiBi, is not supported; use Baichuan-7B");
  ModelSpec spec = read_baichuan(config);
  config.mark_read("z_loss_weight");
  spec.unit_head_rows = spec.vocab_size != 64000;
  if (spec.unit_head_rows && spec.tie_word_embeddings)
    config.fail("tie_word_embeddings", "not supported with a normalised head; use another model");
  return spec;
}

void adapt_baichuan(nlohmann::json& config) {
  config["split_qkv"] = true;
  config.erase("head_dim");
}

}  // namespace lariat
