#include "models/families/gate.h"

#include <algorithm>
#include <cmath>

namespace lariat {
namespace {

constexpr KeyRule kKeys[] = {
    // Multipliers: Granite, MiniCPM, Cohere, Falcon-H1, T5 and others.
    {"embedding_multiplier", "1", "multiplies the embeddings (Granite)"},
    {"residual_multiplier", "1", "multiplies what each layer adds (Granite)"},
    {"attention_multiplier", "1/sqrt(head_dim)", "multiplies the attention scores (Granite)"},
    {"logits_scaling", "1", "divides the logits (Granite)"},
    {"logit_scale", "1", "multiplies the logits (Cohere)"},
    {"scale_emb", "1", "multiplies the embeddings (MiniCPM)"},
    {"scale_depth", "", "multiplies what each layer adds (MiniCPM)"},
    {"dim_model_base", "hidden_size", "divides the logits (MiniCPM)"},
    {"scale_embedding", "false", "multiplies the embeddings by sqrt(hidden_size)"},
    {"lm_head_multiplier", "1", "multiplies the logits (Falcon-H1)"},
    {"key_multiplier", "1", "multiplies the keys (Falcon-H1)"},
    {"attention_in_multiplier", "1", "multiplies attention's input (Falcon-H1)"},
    {"attention_out_multiplier", "1", "multiplies attention's output (Falcon-H1)"},
    {"mlp_multipliers", "ones", "multiply the feed-forward block (Falcon-H1)"},
    {"query_pre_attn_scalar", "head_dim", "scales the attention scores (Gemma)"},
    {"scale_attn_by_inverse_layer_idx", "false", "scales the attention scores by layer (GPT-2)"},
    // Limits.
    {"attn_logit_softcapping", "false|0", "caps the attention scores (Gemma 2)"},
    {"final_logit_softcapping", "false|0", "caps the logits (Gemma 2)"},
    {"logits_soft_cap", "false|0", "caps the logits (RecurrentGemma)"},
    {"clip_qkv", "false|0", "clips q, k and v (OLMo, DBRX)"},
    {"swiglu_limit", "0", "clips the feed-forward block (gpt-oss)"},
    // Norms and the order of a layer.
    {"use_qk_norm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"qk_norm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"qk_layernorm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"use_qk_layernorm", "qk_norm", "says whether the heads of q and k are normalised"},
    {"apply_residual_connection_post_layernorm", "false", "moves the residual connection (BLOOM)"},
    {"use_parallel_residual", "false", "runs attention and feed-forward side by side (GPT-NeoX)"},
    {"parallel_attn", "false", "runs attention and feed-forward side by side (Falcon)"},
    {"hidden_activation", "silu|swish", "names the activation (Gemma)"},
    {"activation_function", "silu|swish", "names the activation (GPT-2)"},
    // Positions.
    {"alibi", "false", "biases attention by distance (ALiBi)"},
    {"use_alibi", "false", "biases attention by distance (ALiBi)"},
    {"position_embedding_type", "rope|rotary", "names another kind of positions"},
    {"use_rope", "true", "leaves RoPE out"},
    {"no_rope_layers", "ones", "leaves RoPE out of layers (SmolLM3, Llama 4)"},
    {"no_rope_layer_interval", "0", "leaves RoPE out of layers (SmolLM3, Llama 4)"},
    {"rope_local_base_freq", "", "is another RoPE base for some layers (Gemma 3)"},
    {"local_rope_theta", "", "is another RoPE base for some layers"},
    {"rotary_pct", "1", "rotates a part of each head (GPT-NeoX)"},
    {"rope_pct", "1", "rotates a part of each head (StableLM)"},
    {"rotary_dim", "head_dim", "rotates a part of each head (GPT-J)"},
    {"rotary_emb_base", "10000", "is the RoPE base of GPT-NeoX, instead of rope_theta"},
    {"attn_temperature_tuning", "false|0", "scales queries by position (Llama 4)"},
    {"llama_4_scaling_beta", "0", "scales queries by position (Ministral 3)"},
    {"use_logn_attn", "false", "scales queries by position (Qwen 1)"},
    {"use_dynamic_ntk", "false", "stretches RoPE with the length (Qwen 1)"},
    // Kinds of attention.
    {"is_causal", "true", "lets a token see later ones"},
    {"use_bidirectional_attention", "false", "lets a token see later ones"},
    {"is_encoder_decoder", "false", "says that there is an encoder"},
    {"add_cross_attention", "false", "adds attention to another sequence"},
    {"dual_chunk_attention_config", "", "attends in chunks (Qwen 2.5 1M)"},
    {"attention_chunk_size", "0", "attends in chunks (Llama 4)"},
    {"sliding_window_pattern", "", "mixes windows and full attention (Gemma 3)"},
    {"interleaved_sliding_window", "", "mixes windows and full attention"},
    {"attention_sinks", "false|0", "adds attention sinks"},
    {"attention_sink_size", "0", "keeps the first tokens of a window"},
    {"attn_output_gate", "false", "gates attention's output (Qwen3-Next)"},
    {"headwise_attn_output_gate", "false", "gates attention's output"},
    {"elementwise_attn_output_gate", "false", "gates attention's output"},
    {"kv_lora_rank", "", "compresses keys and values (DeepSeek)"},
    {"q_lora_rank", "", "compresses queries (DeepSeek)"},
    {"v_head_dim", "head_dim", "gives values a size of their own (DeepSeek)"},
    {"num_kv_shared_layers", "0", "shares keys and values between layers (Gemma 3n)"},
    {"linear_num_value_heads", "", "adds layers of linear attention (Qwen3-Next)"},
    {"attn_config", "", "describes another kind of attention (MPT, DBRX)"},
    // Layers that are not all alike; experts.
    {"per_layer_config", "", "gives layers shapes of their own"},
    {"block_configs", "", "gives layers shapes of their own (Nemotron)"},
    {"use_moe", "false", "says that there are experts"},
    {"num_experts", "0|1|dense", "is a number of experts"},
    {"num_local_experts", "0|1|dense", "is a number of experts (Mixtral)"},
    {"n_routed_experts", "0|dense", "is a number of experts (DeepSeek)"},
    {"n_shared_experts", "0|dense", "is a number of experts (DeepSeek)"},
    {"num_shared_experts", "0|dense", "is a number of experts"},
    {"num_experts_per_tok", "0|1|dense", "is a number of experts"},
    {"moe_num_experts", "0|1|dense", "is a number of experts"},
    {"moe_intermediate_size", "dense", "is the size of experts"},
    {"moe_layers", "dense", "lists layers with experts"},
};

constexpr KeyRule kRopeKeys[] = {
    {"attn_factor", "1",
     "multiplies YaRN's temperature (its first code, where transformers has attention_factor)"},
    {"extrapolation_factor", "1", "weighs YaRN's ramp (its first code)"},
    {"llama_4_scaling_beta", "0", "scales queries by position (Ministral 3)"},
    {"short_mscale", "", "scales cos and sin (Phi-3.5-MoE)"},
    {"long_mscale", "", "scales cos and sin (Phi-3.5-MoE)"},
    {"alpha", "1", "stretches the base (HunYuan)"},
};

constexpr std::string_view kKnownRopeKeys[] = {
    "rope_type", "type", "factor", "rope_theta", "partial_rotary_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "original_max_position_embeddings", "truncate", "finetuned", "short_factor",
    "long_factor", "attention_factor", "low_freq_factor", "high_freq_factor",
    // The parts of a head that take their angles from an image's rows and columns; in text all are equal.
    "mrope_section", "mrope_interleaved"};

// Keys that one family heeds and another passes over.
struct PassedOver {
  std::string_view key, neutral, model_types, what;
};
constexpr PassedOver kPassedOver[] = {
    {"sliding_window", "",
     "llama minimind gemma granite olmo2 internlm internlm2 baichuan gpt_neox bloom mpt deepseek_v2 "
     "deepseek_v3 "
     "minicpm3",
     "ignored, as in transformers: this architecture attends to all positions"},
    {"use_sliding_window", "true", "mistral ministral3 phi3",
     "ignored, as in transformers: sliding_window alone decides"},
    {"attention_bias", "false",
     "mistral ministral3 minimind phi3 internlm internlm2 baichuan bloom mpt mixtral",
     "ignored, as in transformers: no such biases here"},
    {"mlp_bias", "false",
     "mistral ministral3 qwen2 qwen2_vl qwen2_5_vl qwen3 minimind phi3 gemma gemma2 gemma3_text olmo2 olmo3 "
     "internlm internlm2 baichuan gpt_neox bloom mpt mixtral qwen3_moe",
     "ignored, as in transformers: no such biases here"},
    {"auto_map", "",
     "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text granite smollm3 olmo2 olmo3 gpt_neox bloom mpt "
     "mixtral "
     "qwen3_moe deepseek_v2 deepseek_v3 minicpm3 qwen3_vl",
     "code that lariat never runs: if it computes something else than transformers' class, so does the "
     "model"},
};

// Whether `words`, separated by spaces, has this one.
bool has_word(std::string_view words, std::string_view word) {
  return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

// Whether a number of the model or of the file is `value`, which JSON may hold in fewer digits.
bool near(const nlohmann::json& value, double wanted) {
  return value.is_number() && std::fabs(value.get<double>() - wanted) <= 1e-6 * std::fabs(wanted);
}

bool no_experts(const JsonFields& config, const ModelSpec& spec) {
  const nlohmann::json* use = config.find("use_moe");
  return use == nullptr ? spec.family == "MiniMindForCausalLM" : use->is_boolean() && !use->get<bool>();
}

bool is_ones(const nlohmann::json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& item) {
           return near(item, 1.0) || (item.is_boolean() && item.template get<bool>());
         });
}

bool matches(const nlohmann::json& value, std::string_view word, const JsonFields& config,
             const ModelSpec& spec) {
  const AttentionSpec& attention = spec.layers.front().attention;
  if (word == "hidden_size") return near(value, static_cast<double>(spec.hidden_size));
  if (word == "head_dim") return near(value, static_cast<double>(attention.head_dim));
  if (word == "1/sqrt(head_dim)") return near(value, static_cast<double>(attention.scale));
  if (word == "qk_norm")
    return value.is_boolean() && value.get<bool>() == (attention.qk_norm != QkNorm::kNone);
  if (word == "ones") return is_ones(value);
  if (word == "dense") return no_experts(config, spec);
  if (value.is_string()) return value.get<std::string>() == word;
  if (value.is_boolean()) return word == (value.get<bool>() ? "true" : "false");
  const nlohmann::json number = nlohmann::json::parse(word, nullptr, false);
  return number.is_number() && near(value, number.get<double>());
}

bool is_neutral(const nlohmann::json& value, std::string_view neutral, const JsonFields& config,
                const ModelSpec& spec) {
  if (value.empty()) return true;  // nlohmann: null, [] and {}
  if (value.is_string() && value.get<std::string>().empty()) return true;
  for (size_t at = 0; at <= neutral.size() && !neutral.empty();) {
    const size_t end = std::min(neutral.find('|', at), neutral.size());
    if (matches(value, neutral.substr(at, end - at), config, spec)) return true;
    at = end + 1;
  }
  return false;
}

[[noreturn]] void refuse(const JsonFields& object, const KeyRule& rule) {
  std::string_view value = rule.neutral.substr(0, rule.neutral.find('|'));
  std::string line =
      std::string(rule.what) + ", which lariat does not do in this architecture; remove the key";
  if (value == "ones") value = "a list of ones";
  if (!value.empty() && value != "dense" && value != "qk_norm")
    line += ", or set it to " + std::string(value) + ",";
  object.fail(rule.key, line + " if the model was trained without it");
}

}  // namespace

std::span<const KeyRule> key_rules() { return kKeys; }
std::span<const KeyRule> rope_key_rules() { return kRopeKeys; }

void check_keys(const JsonFields& config, std::string_view model_type, std::string_view heeds,
                ModelSpec& spec) {
  for (const KeyRule& rule : kKeys) {
    const nlohmann::json* value = config.find(rule.key);
    if (value != nullptr && !has_word(heeds, rule.key) && !is_neutral(*value, rule.neutral, config, spec))
      refuse(config, rule);
  }
  for (const PassedOver& rule : kPassedOver) {
    const nlohmann::json* value = config.find(rule.key);
    if (value == nullptr || !has_word(rule.model_types, model_type)) continue;
    if (is_neutral(*value, rule.neutral, config, spec)) continue;
    spec.warnings.push_back(config.message(rule.key, std::string(rule.what)));
  }
}

void check_rope_keys(const JsonFields& object, std::string_view heeds, std::vector<std::string>* warnings) {
  ModelSpec nothing;  // no rule of these speaks of the model
  nothing.layers.resize(1);
  for (const std::string& key : object.keys()) {
    if (has_word(heeds, key)) continue;
    const nlohmann::json* value = object.find(key);
    const auto rule =
        std::find_if(std::begin(kRopeKeys), std::end(kRopeKeys), [&](auto& r) { return r.key == key; });
    if (rule != std::end(kRopeKeys)) {
      if (value != nullptr && !is_neutral(*value, rule->neutral, object, nothing)) refuse(object, *rule);
    } else if (value != nullptr && warnings != nullptr && !object.holds_object(key) &&
               std::find(std::begin(kKnownRopeKeys), std::end(kKnownRopeKeys), key) ==
                   std::end(kKnownRopeKeys)) {
      warnings->push_back(object.message(key.substr(0, 60), "no such key of RoPE is known; ignored"));
    }
  }
}

}  // namespace lariat
