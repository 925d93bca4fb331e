#include <cmath>

#include "models/families/family.h"

// Families with latent attention or the routers of DeepSeek: DeepSeek, GLM-4.5 and 4.7-Flash, Youtu-LLM,
// MiniCPM3 (transformers 5.24).
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
  int64_t n_chosen = 0, n_groups = 0;  // 0: the keys are required
};

int64_t need_or(const JsonFields& config, const char* key, int64_t hi, int64_t missing) {
  return missing > 0 ? config.integer(key, 1, hi).value_or(missing) : config.need_integer(key, 1, hi);
}

ExpertsSpec read_experts(const JsonFields& config, const ExpertDefaults& d) {
  ExpertsSpec experts;
  experts.n = config.integer("n_routed_experts", 1, kMaxExperts).value_or(d.n);
  experts.intermediate_size =
      config.integer("moe_intermediate_size", 1, kMaxIntermediate).value_or(d.intermediate_size);
  experts.router.n_chosen = need_or(config, "num_experts_per_tok", experts.n, d.n_chosen);
  experts.router.scale =
      static_cast<float>(config.number("routed_scaling_factor", 0.0, 1e6).value_or(d.scale));
  return experts;
}

void read_groups(const JsonFields& config, ExpertsSpec& experts, int64_t missing = 0) {
  Router& router = experts.router;
  router.n_groups = need_or(config, "n_group", experts.n, missing);
  router.kept_groups = need_or(config, "topk_group", router.n_groups, missing);
  if (experts.n % router.n_groups != 0)
    config.fail("n_group", "expected a divisor of the " + std::to_string(experts.n) + " experts");
  if (router.n_chosen > experts.n / router.n_groups * router.kept_groups)
    config.fail("topk_group", "expected groups with at least num_experts_per_tok experts");
}

// may_skip: moe_layer_freq leaves layers dense.
void use_shared_experts(const JsonFields& config, const ExpertDefaults& d, const ExpertsSpec& experts,
                        ModelSpec& spec, bool may_skip = false) {
  const int64_t every = config.integer("moe_layer_freq", 1, kMaxLayers).value_or(1);
  if (every != 1 && !may_skip) config.fail("moe_layer_freq", "only 1 is supported; use another model");
  const int64_t shared = config.integer("n_shared_experts", 0, kMaxExperts).value_or(d.shared);
  const int64_t dense = config.integer("first_k_dense_replace", 0, kMaxLayers).value_or(d.first_dense);
  for (size_t i = static_cast<size_t>(dense); i < spec.layers.size(); ++i) {
    if (i % static_cast<size_t>(every) == 0) use_experts(experts, shared, spec.layers[i]);
  }
}

// DeepSeek-V3's router: sigmoids, and a correction for the choice alone.
ExpertsSpec read_corrected_experts(const JsonFields& config, const ExpertDefaults& d) {
  ExpertsSpec experts = read_experts(config, d);
  expect_word(config, "scoring_func", "sigmoid");
  expect_word(config, "topk_method", "noaux_tc");
  experts.router.sigmoid = experts.choice_bias = true;
  experts.router.normalise = config.boolean("norm_topk_prob").value_or(true);
  read_groups(config, experts, d.n_groups);
  return experts;
}

// Multi-token prediction layers.
void read_unread_layers(const JsonFields& config, int64_t missing, ModelSpec& spec) {
  spec.n_unread_layers = config.integer("num_nextn_predict_layers", 0, kMaxLayers).value_or(missing);
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
  use_shared_experts(config, d, read_corrected_experts(config, d), spec);
  read_unread_layers(config, 1, spec);
  return spec;
}

// GLM-4.7-Flash (models/glm4_moe_lite).
ModelSpec read_glm4_moe_lite(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 154880;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 10240;
  defaults.n_layers = 47;
  defaults.n_heads = 20;
  defaults.max_position_embeddings = 202752;
  defaults.norm_eps = 1e-5;
  defaults.bos_token_id = 0;
  defaults.eos_token_id = 1;
  defaults.rope.interleaved = defaults.rope.interleave_is_key = true;
  ModelSpec spec = read_with_latent(config, defaults, 256);
  const ExpertDefaults d{64, 1, 1536, 1, 1.8, 4, 1};
  const ExpertsSpec experts = read_corrected_experts(config, d);
  const auto types = config.strings("mlp_layer_types");
  if (!types) use_shared_experts(config, d, experts, spec);
  if (types && types->size() != spec.layers.size())
    config.fail("mlp_layer_types", "expected one entry per layer");
  const int64_t shared = config.integer("n_shared_experts", 0, kMaxExperts).value_or(d.shared);
  for (size_t i = 0; types && i < types->size(); ++i) {
    if ((*types)[i] == "sparse") use_experts(experts, shared, spec.layers[i]);
  }
  if (types) config.mark_read("first_k_dense_replace");
  read_unread_layers(config, 1, spec);
  return spec;
}

// Mistral Small 4 (models/mistral4): queries are scaled by the logarithm of their position.
ModelSpec read_mistral4(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 12288;
  defaults.n_layers = 36;
  defaults.max_position_embeddings = 1048576;
  defaults.bos_token_id = 1;
  defaults.eos_token_id = 2;
  defaults.rope.interleaved = defaults.rope.interleave_is_key = true;
  defaults.rope.scales_queries = defaults.rope.partial_is_key = true;
  ModelSpec spec = read_with_latent(config, defaults, 128);
  config.mark_read("head_dim");
  const JsonFields rope = rope_object(config);
  if (rope.keys().empty()) config.fail("rope_parameters", "expected an object");
  // partial_rotary_factor, if present, is the rotated part of a head; head_dim is that part here.
  RopeScaling& own = spec.rope();
  const LatentSpec& latent = spec.layers.front().attention.latent;
  const double part = static_cast<double>(latent.rope_dim) / static_cast<double>(latent.query_dim());
  if (rope.number("partial_rotary_factor", 0.0, 1.0).value_or(part) != part)
    rope.fail("partial_rotary_factor", "does not match qk_rope_head_dim; correct one of them");
  own.partial_rotary_factor = 1.0;
  set_rotary_dim(own);
  spec.query_scale.log_beta = rope.number("llama_4_scaling_beta", 0.0, 1e3).value_or(0.0);
  spec.query_scale.log_ctx = own.original_ctx;
  const ExpertDefaults d{128, 1, 2048, 0, 1.0, 4, 1};
  ExpertsSpec experts = read_experts(config, d);
  experts.router.normalise = config.boolean("norm_topk_prob").value_or(true);
  read_groups(config, experts, 1);
  if (experts.router.n_groups != 1) config.fail("n_group", "only 1 is supported; use another model");
  use_shared_experts(config, d, experts, spec);
  return spec;
}

// GLM-4.5: attention with half of each head rotated (models/glm4_moe).
ModelSpec read_glm4_moe(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 151552;
  defaults.intermediate_size = 10944;
  defaults.n_layers = 46;
  defaults.n_heads = 96;
  defaults.n_kv_heads = 8;
  defaults.max_position_embeddings = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope = {.partial_rotary_factor = 0.5, .partial_is_key = true};
  ModelSpec spec = read_decoder(config, defaults);
  check_sliding_layers(config, spec);
  const bool bias = config.boolean("attention_bias").value_or(false);
  const bool norms = config.boolean("use_qk_norm").value_or(false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.qk_norm = norms ? QkNorm::kPerHead : QkNorm::kNone;
  }
  spec.bias_keys = "attention_bias";
  const ExpertDefaults d{128, 1, 1408, 1, 1.0, 8, 1};
  use_shared_experts(config, d, read_corrected_experts(config, d), spec);
  read_unread_layers(config, 1, spec);
  return spec;
}

// Youtu-LLM: latent attention in a dense model (models/youtu).
ModelSpec read_youtu(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.n_heads = 16;
  defaults.max_position_embeddings = 131072;
  defaults.tie_word_embeddings = true;
  defaults.bos_token_id = 128000;
  defaults.eos_token_id = 128001;
  defaults.rope.interleaved = defaults.rope.interleave_is_key = true;
  return read_with_latent(config, defaults, 128);
}

void adapt_youtu(nlohmann::json& config) {
  for (const char* of_experts : {"first_k_dense_replace", "moe_intermediate_size", "n_shared_experts"})
    config.erase(of_experts);
}

// DeepSeek's first model with experts (modeling_deepseek.py of deepseek-ai/deepseek-moe-16b-base).
ModelSpec read_deepseek(const JsonFields& config) {
  Defaults defaults;
  defaults.vocab_size = 102400;
  defaults.bos_token_id = 100000;
  defaults.eos_token_id = 100001;
  ModelSpec spec = read_decoder(config, defaults);
  read_biases(config, /*has_mlp_bias=*/false, spec);
  check_sliding_layers(config, spec);
  expect_word(config, "scoring_func", "softmax");
  const bool renormalise = config.boolean("norm_topk_prob").value_or(false);
  if (!config.has("n_routed_experts")) {
    for (const char* of_experts : {"moe_intermediate_size", "num_experts_per_tok", "n_shared_experts",
                                   "first_k_dense_replace", "moe_layer_freq"})
      config.mark_read(of_experts);
    return spec;
  }
  const ExpertDefaults d{1, 0, 1407, 0, 1.0};
  ExpertsSpec experts = read_experts(config, d);
  experts.router.normalise = renormalise && experts.router.n_chosen > 1;
  use_shared_experts(config, d, experts, spec, /*may_skip=*/true);
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
  const bool third = config["model_type"] != "deepseek_v2", groups = config["n_group"] > 1;
  if (config["model_type"] == "deepseek") {
    for (const char* later : {"n_group", "topk_group"}) config.erase(later);
    return;
  }
  config["topk_method"] = third ? "noaux_tc" : groups ? "group_limited_greedy" : "greedy";
  if (third) config.emplace("num_nextn_predict_layers", 0);
}

// The converter drops the published scale of queries.
void adapt_mistral4(nlohmann::json& config) {
  config.emplace("norm_topk_prob", true);
  adapt_deepseek(config);
  for (const char* of_others : {"topk_method", "num_nextn_predict_layers"}) config.erase(of_others);
  if (config.contains("rope_scaling")) config["rope_scaling"]["llama_4_scaling_beta"] = 0.1;
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
  read_minicpm_multipliers(config, 12.0, 256.0, 1.4, spec);
  return spec;
}

}  // namespace lariat
