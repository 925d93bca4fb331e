#include "models/families/gate.h"

#include <algorithm>
#include <cmath>

#include "models/families/family.h"

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
    {"hidden_activation", "activation", "names the activation (Gemma)"},
    {"activation_function", "activation", "names the activation (GPT-2)"},
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

// Keys that a family did not ask for and that change nothing here, or not in silence. A name may begin or end
// with *, which stands for anything.
struct PassedOver {
  std::string_view name;
  std::string_view neutral;  // as of KeyRule, or "*": whatever the value is
  std::string_view what = "not a key of this architecture; ignored";
};
constexpr PassedOver kPassedOver[] = {
    {"sliding_window", "0|false", "ignored, as in transformers: this architecture attends to all positions"},
    {"use_sliding_window", "windows", "ignored, as in transformers: sliding_window alone decides"},
    {"attention_bias", "false", "ignored, as in transformers: no such biases here"},
    {"mlp_bias", "false", "ignored, as in transformers: no such biases here"},
    {"auto_map", "own code",
     "code that lariat never runs: if it computes something else than transformers' class, so does the "
     "model"},
    // What other families have under these names, where the model happens to be so.
    {"num_key_value_heads", "n_kv_heads"},
    {"head_dim", "head_dim"},
    {"intermediate_size", "intermediate_size"},
    {"n_inner", "intermediate_size"},
    {"hidden_act", "activation"},
    {"rope_theta", "rope_theta"},
    {"partial_rotary_factor", "rotated part"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"norm_type", "low_precision_layernorm"},
    {"norm_topk_prob", "dense|true"},
    // Training, other files, and how rather than what is computed.
    {"_*", "*"},
    {"*_token_id", "*"},
    {"*dropout", "*"},
    {"*_pdrop", "*"},
    {"*_loss_coef", "*"},
    {"vision_config", "*"},
    {"transformers_version", "*"},
    {"torch_dtype", "*"},  // beside dtype
    {"initializer_range", "*"},
    {"init_device", "*"},
    {"use_cache", "*"},
    {"cache_implementation", "*"},
    {"attn_implementation", "*"},
    {"flash_attn", "*"},
    {"pretraining_tp", "*"},
    {"ep_size", "*"},
    {"aux_loss_alpha", "*"},
    {"seq_aux", "*"},
    {"output_router_logits", "*"},
    {"max_window_layers", "*"},
    {"model_max_length", "*"},
    {"max_sequence_length", "*"},
    {"tokenizer_class", "*"},
    {"tokenizer_name", "*"},
    {"id2label", "*"},
    {"label2id", "*"},
    {"verbose", "*"},
    // BLOOM's and MPT's, as their published files have them.
    {"attention_softmax_in_fp32", "*"},
    {"bias_dropout_fusion", "*"},
    {"masked_softmax_fusion", "*"},
    {"skip_bias_add*", "*"},
    {"offset_alibi", "*"},
    {"embedding_fraction", "1"},
    {"learned_pos_emb", "*"},
    {"attn_impl", "*"},
    {"attn_uses_sequence_id", "false"},
};

// The families that transformers has no class of, or whose files still name code that its class agrees with.
constexpr std::string_view kOwnCode =
    "MiniMindForCausalLM Phi3ForCausalLM InternLMForCausalLM InternLM2ForCausalLM BaiChuanForCausalLM";

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
  if (word == "head_dim") return near(value, static_cast<double>(spec.rope().head_dim));
  if (word == "1/sqrt(head_dim)") return near(value, static_cast<double>(attention.scale));
  if (word == "*") return true;
  if (word == "own code") return has_name(kOwnCode, spec.family);
  if (word == "qk_norm")
    return value.is_boolean() && value.get<bool>() == (attention.qk_norm != QkNorm::kNone);
  if (word == "ones") return is_ones(value);
  if (word == "dense") return no_experts(config, spec);
  if (word == "n_kv_heads") return near(value, static_cast<double>(attention.n_kv_heads));
  if (word == "intermediate_size")
    return near(value, static_cast<double>(spec.layers.front().feed_forward.intermediate_size));
  if (word == "activation")
    return value.is_string() &&
           find_activation(value.get<std::string>()) == spec.layers.front().feed_forward.activation;
  if (word == "rope_theta") return near(value, spec.rope().theta);
  if (word == "rotated part") return near(value, spec.rope().partial_rotary_factor);
  if (word == "windows") return value.is_boolean() && value.get<bool>() == (attention.sliding_window > 0);
  if (value.is_string()) return value.get<std::string>() == word;
  if (value.is_boolean()) return word == (value.get<bool>() ? "true" : "false");
  const nlohmann::json number = nlohmann::json::parse(word, nullptr, false);
  return number.is_number() && near(value, number.get<double>());
}

bool is_neutral(const nlohmann::json& value, std::string_view neutral, const JsonFields& config,
                const ModelSpec& spec) {
  if (is_empty(value)) return true;
  for (size_t at = 0; at <= neutral.size() && !neutral.empty();) {
    const size_t end = std::min(neutral.find('|', at), neutral.size());
    if (matches(value, neutral.substr(at, end - at), config, spec)) return true;
    at = end + 1;
  }
  return false;
}

const KeyRule* find_rule(std::span<const KeyRule> rules, std::string_view key) {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const KeyRule& r) { return r.key == key; });
  return rule == rules.end() ? nullptr : &*rule;
}

bool is_named(std::string_view name, std::string_view key) {
  if (name.starts_with('*')) return key.ends_with(name.substr(1));
  if (name.ends_with('*')) return key.starts_with(name.substr(0, name.size() - 1));
  return key == name;
}

const PassedOver* find_passed_over(std::string_view key) {
  const auto rule = std::find_if(std::begin(kPassedOver), std::end(kPassedOver),
                                 [&](const PassedOver& r) { return is_named(r.name, key); });
  return rule == std::end(kPassedOver) ? nullptr : &*rule;
}

[[noreturn]] void refuse(const JsonFields& object, const KeyRule& rule) {
  std::string_view value = rule.neutral.substr(0, rule.neutral.find('|'));
  std::string line =
      std::string(rule.what) + ", which lariat does not do in this architecture; remove the key";
  if (value == "ones") value = "a list of ones";
  if (!value.empty() && value != "dense" && value != "qk_norm" && value != "activation")
    line += ", or set it to " + std::string(value) + ",";
  object.fail(rule.key, line + " if the model was trained without it");
}

}  // namespace

std::span<const KeyRule> key_rules() { return kKeys; }
std::span<const KeyRule> rope_key_rules() { return kRopeKeys; }

void check_keys(const JsonFields& config, std::string_view heeds, ModelSpec& spec) {
  warn_unread(config, spec);  // first: what follows asks for every key
  for (const KeyRule& rule : kKeys) {
    const nlohmann::json* value = config.find(rule.key);
    if (value != nullptr && !has_name(heeds, rule.key) && !is_neutral(*value, rule.neutral, config, spec))
      refuse(config, rule);
  }
}

void warn_unread(const JsonFields& object, ModelSpec& spec) {
  constexpr size_t kShown = 8;
  std::vector<std::string> unknown;
  for (const std::string& key : object.unread_keys()) {
    if (find_rule(kKeys, key) != nullptr) continue;
    const PassedOver* known = find_passed_over(key);
    const PassedOver rule = known != nullptr ? *known : PassedOver{key, "false|0"};
    const nlohmann::json* value = object.find(key);
    if (value == nullptr || is_neutral(*value, rule.neutral, object, spec)) continue;
    if (known == nullptr) unknown.push_back(key);
    if (unknown.size() <= kShown || known != nullptr)
      spec.warnings.push_back(object.message(key.substr(0, 60), std::string(rule.what)));
  }
  if (unknown.size() > kShown) {
    spec.warnings.push_back(object.file() + ": " + std::to_string(unknown.size() - kShown) +
                            " more keys are none of this architecture; ignored");
  }
}

void check_rope_keys(const JsonFields& object, std::string_view heeds, std::vector<std::string>* warnings) {
  ModelSpec nothing;  // no rule of these speaks of the model
  nothing.layers.resize(1);
  for (const std::string& key : object.keys()) {
    if (has_name(heeds, key)) continue;
    const nlohmann::json* value = object.find(key);
    if (const KeyRule* rule = find_rule(kRopeKeys, key)) {
      if (value != nullptr && !is_neutral(*value, rule->neutral, object, nothing)) refuse(object, *rule);
    } else if (value != nullptr && warnings != nullptr && !object.holds_object(key) &&
               std::find(std::begin(kKnownRopeKeys), std::end(kKnownRopeKeys), key) ==
                   std::end(kKnownRopeKeys)) {
      warnings->push_back(object.message(key.substr(0, 60), "no such key of RoPE is known; ignored"));
    }
  }
}

}  // namespace lariat
