#include <cmath>

#include "models/families/family.h"

// Families with latent attention: DeepSeek-V2 and V3, MiniCPM3 (transformers 5.23).
namespace lariat {
namespace {

// A missing or null q_lora_rank means no query compression.
void read_latent(const JsonFields& config, int64_t v_dim, ModelSpec& spec) {
  LatentSpec latent;
  const auto size = [&](const char* key, int64_t least) { return config.need_integer(key, least, 1 << 16); };
  latent.q_rank = config.has("q_lora_rank") ? size("q_lora_rank", 1) : 0;
  latent.kv_rank = size("kv_lora_rank", 1);
  latent.rope_dim = spec.rope().head_dim;
  latent.nope_dim = size("qk_nope_head_dim", 1);
  latent.v_dim = config.integer("v_head_dim", 1, 1 << 16).value_or(v_dim);
  if (latent.rope_dim + latent.kv_rank > kMaxHeadDim) {
    config.fail("kv_lora_rank", "expected a cached row, rotated part included, of at most " +
                                    std::to_string(kMaxHeadDim) + " values");
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (config.boolean(key).value_or(false))
      config.fail(key, "biases are not supported in this architecture; use a model without biases");
  }
  const AttentionSpec& first = spec.layers.front().attention;
  if (first.n_kv_heads != first.n_heads)
    config.fail("num_key_value_heads", "latent attention has keys for every head; remove the key");
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = layer.attention;
    attention.latent = latent;
    attention.n_kv_heads = 1;
    attention.head_dim = latent.rope_dim + latent.kv_rank;
    attention.scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(latent.nope_dim + latent.rope_dim)));
  }
}

// head_dim: rotated part. v_dim: default v_head_dim; 0: hidden_size / heads.
ModelSpec read_with_latent(const JsonFields& config, Defaults defaults, int64_t v_dim) {
  defaults.keys.head_dim = "qk_rope_head_dim";
  if (defaults.head_dim == 0) defaults.head_dim = 64;
  ModelSpec spec = read_decoder(config, defaults);
  spec.scores_take_mscale = true;
  const std::string type(name_of(spec.rope().type));
  if (type != "yarn" && spec.rope().mscale_all_dim != 0.0)
    rope_object(config).fail("mscale_all_dim", "not supported with " + type + "; remove the key");
  if (v_dim == 0 && !config.has("v_head_dim") &&
      spec.hidden_size % spec.layers.front().attention.n_heads != 0)
    config.fail("num_attention_heads", "does not divide hidden_size; set v_head_dim");
  read_latent(config, v_dim > 0 ? v_dim : spec.hidden_size / spec.layers.front().attention.n_heads, spec);
  return spec;
}

void expect_word(const JsonFields& config, const char* key, std::string_view word) {
  if (config.string(key).value_or(std::string(word)) != word)
    config.fail(key,
                "only \"" + std::string(word) + "\" is supported in this architecture; use another model");
}

struct ExpertDefaults {
  int64_t n, shared, intermediate_size, first_dense;
  double scale;
};

ExpertsSpec read_experts(const JsonFields& config, const ExpertDefaults& d) {
  ExpertsSpec experts;
  experts.n = config.integer("n_routed_experts", 1, kMaxExperts).value_or(d.n);
  experts.intermediate_size =
      config.integer("moe_intermediate_size", 1, kMaxIntermediate).value_or(d.intermediate_size);
  experts.router.n_chosen = config.need_integer("num_experts_per_tok", 1, experts.n);
  experts.router.scale =
      static_cast<float>(config.number("routed_scaling_factor", 0.0, 1e6).value_or(d.scale));
  return experts;
}

void read_groups(const JsonFields& config, ExpertsSpec& experts) {
  Router& router = experts.router;
  router.n_groups = config.need_integer("n_group", 1, experts.n);
  router.kept_groups = config.need_integer("topk_group", 1, router.n_groups);
  if (experts.n % router.n_groups != 0)
    config.fail("n_group", "expected a divisor of the " + std::to_string(experts.n) + " experts");
  if (router.n_chosen > experts.n / router.n_groups * router.kept_groups)
    config.fail("topk_group", "expected groups with at least num_experts_per_tok experts");
}

void use_shared_experts(const JsonFields& config, const ExpertDefaults& d, const ExpertsSpec& experts,
                        ModelSpec& spec) {
  if (config.integer("moe_layer_freq", 1, kMaxLayers).value_or(1) != 1)
    config.fail("moe_layer_freq", "only 1 is supported; use another model");
  const int64_t shared = config.integer("n_shared_experts", 0, kMaxExperts).value_or(d.shared);
  const int64_t dense = config.integer("first_k_dense_replace", 0, kMaxLayers).value_or(d.first_dense);
  for (size_t i = static_cast<size_t>(dense); i < spec.layers.size(); ++i)
    use_experts(experts, shared, spec.layers[i]);
}

}  // namespace

ModelSpec read_deepseek_v2(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 102400;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.interleaved = defaults.rope.interleave_is_key = true;
  ModelSpec spec = read_with_latent(config, defaults, 128);
  const ExpertDefaults d{64, 2, 1407, 0, 1.0};
  ExpertsSpec experts = read_experts(config, d);
  expect_word(config, "scoring_func", "softmax");
  if (config.boolean("norm_topk_prob").value_or(false))
    config.fail("norm_topk_prob",
                "not supported: transformers ignores the key here, DeepSeek's code does not; " +
                    std::string("remove the key"));
  const std::string method = config.string("topk_method").value_or("greedy");
  if (method == "group_limited_greedy") {
    read_groups(config, experts);
  } else if (method != "greedy") {
    config.fail("topk_method", "expected greedy or group_limited_greedy");
  }
  use_shared_experts(config, d, experts, spec);
  return spec;
}

ModelSpec read_deepseek_v3(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 129280;
  defaults.hidden_size = 7168;
  defaults.intermediate_size = 18432;
  defaults.n_layers = 61;
  defaults.n_heads = 128;
  defaults.max_position_embeddings = 4096;
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 1;
  defaults.rope.interleaved = defaults.rope.interleave_is_key = true;
  ModelSpec spec = read_with_latent(config, defaults, 128);
  const ExpertDefaults d{256, 1, 2048, 3, 2.5};
  ExpertsSpec experts = read_experts(config, d);
  expect_word(config, "scoring_func", "sigmoid");
  expect_word(config, "topk_method", "noaux_tc");
  experts.router.sigmoid = experts.choice_bias = true;
  experts.router.normalise = config.boolean("norm_topk_prob").value_or(true);
  read_groups(config, experts);
  use_shared_experts(config, d, experts, spec);
  spec.n_unread_layers = config.integer("num_nextn_predict_layers", 0, kMaxLayers).value_or(1);
  return spec;
}

// Adds keys that GGUF files lack. Files before 2025-12 also lack the groups of models with 160 or 256
// experts.
void adapt_deepseek(nlohmann::json& config) {
  if (!config.contains("num_local_experts")) return;
  const nlohmann::json n = config["n_routed_experts"] = config["num_local_experts"];
  config.erase("num_local_experts");
  const bool v2 = n == 160, v3 = n == 256;
  config.emplace("n_shared_experts", 0);
  config.emplace("first_k_dense_replace", 0);
  config.emplace("routed_scaling_factor", 1.0);
  config.emplace("norm_topk_prob", false);
  config.emplace("n_group", v2 || v3 ? 8 : 1);
  config.emplace("topk_group", v2 ? 3 : v3 ? 4 : 1);
  if (config["routed_scaling_factor"] == 0) config["routed_scaling_factor"] = 1.0;
  const bool third = config["model_type"] == "deepseek_v3", groups = config["n_group"] > 1;
  config["topk_method"] = third ? "noaux_tc" : groups ? "group_limited_greedy" : "greedy";
  if (third) config["num_nextn_predict_layers"] = 0;
}

// Dense; rotated dimensions are paired half and half.
ModelSpec read_minicpm3(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 73448;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6400;
  defaults.n_layers = 62;
  defaults.n_heads = 40;
  defaults.max_position_embeddings = 32768;
  defaults.head_dim = 32;
  defaults.norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  ModelSpec spec = read_with_latent(config, defaults, 0);
  // null disables a multiplier; a missing key has a default.
  const auto multiplier = [&](const char* key, double missing, double none) {
    return config.number(key, 1e-6, 1e6).value_or(config.present(key) ? none : missing);
  };
  const auto hidden = static_cast<double>(spec.hidden_size),
             n_layers = static_cast<double>(spec.layers.size());
  spec.embedding_multiplier = static_cast<float>(multiplier("scale_emb", 12.0, 1.0));
  spec.logits_multiplier = static_cast<float>(multiplier("dim_model_base", 256.0, hidden) / hidden);
  for (LayerSpec& layer : spec.layers)
    layer.residual_multiplier =
        static_cast<float>(multiplier("scale_depth", 1.4, std::sqrt(n_layers)) / std::sqrt(n_layers));
  return spec;
}

}  // namespace lariat
