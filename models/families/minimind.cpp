#include <cmath>
#include <numbers>

#include "models/families/family.h"
#include "models/spec/rope_config.h"

// MiniMind: MiniMindConfig of model/model_minimind.py.
namespace lariat {
namespace {

// MiniMindConfig replaces rope_scaling by inference_rope_scaling or none; another scaling in the file
// contradicts it. precompute_freqs_cis scales only beyond max_position_embeddings 2048.
RopeScaling meant_scaling(const JsonFields& config, const RopeScaling& written) {
  RopeScaling meant = rope_of_type(written, RopeType::kDefault);
  meant.original_ctx = meant.max_position_embeddings;
  if (config.boolean("inference_rope_scaling").value_or(false) && meant.max_position_embeddings > 2048) {
    meant.type = RopeType::kYarn;
    meant.factor = 16.0;
    meant.original_ctx = 2048;
    meant.attention_factor = 1.0;
  }
  if (written.type != RopeType::kDefault && written != meant) {
    config.fail(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                "MiniMind uses only inference_rope_scaling for scaling; remove one (or use "
                "`rope_config`)");
  }
  return meant;
}

}  // namespace

ModelSpec read_minimind(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 6400;
  defaults.hidden_size = 768;
  defaults.n_layers = defaults.n_heads = 8;
  defaults.n_kv_heads = 4;
  defaults.max_position_embeddings = 32768;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.theta = 1e6;
  const int64_t hidden = config.integer("hidden_size", 1, kMaxHidden).value_or(defaults.hidden_size);
  defaults.intermediate_size =
      static_cast<int64_t>(std::ceil(static_cast<double>(hidden) * std::numbers::pi / 64)) * 64;
  ModelSpec spec = read_decoder(config, defaults);
  if (config.boolean("use_moe").value_or(false))
    config.fail("use_moe", "experts are not supported in this architecture; use a dense model");
  // Without use_moe, expert keys have no effect.
  for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_routed_experts",
                          "n_shared_experts"})
    config.has(key);
  // Weights before 2026-03-24 have no q and k norms; the config does not tell.
  for (LayerSpec& layer : spec.layers) layer.attention.qk_norm = QkNorm::kPerHead;
  spec.qk_norm_if_stored = true;
  spec.rope() = meant_scaling(config, spec.rope());
  check_sliding_layers(config, spec);
  return spec;
}

}  // namespace lariat
