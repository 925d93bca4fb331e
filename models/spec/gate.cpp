#include "models/spec/gate.h"

#include <algorithm>
#include <cmath>

namespace lariat {
namespace {

using Json = nlohmann::json;

constexpr KeyRule kRefused[] = {
    {"embedding_multiplier scale_emb", "1", "multiplies the embeddings (Granite, MiniCPM)"},
    {"scale_embedding", "", "multiplies the embeddings by sqrt(hidden_size)"},
    {"residual_multiplier", "1", "multiplies what each layer adds (Granite)"},
    {"scale_depth", "", "multiplies what each layer adds (MiniCPM)"},
    {"attention_multiplier", "1/sqrt(head_dim)", "multiplies the attention scores (Granite)"},
    {"query_pre_attn_scalar", "head_dim", "scales the attention scores (Gemma)"},
    {"scale_attn_by_inverse_layer_idx", "", "scales the attention scores by layer (GPT-2)"},
    {"logits_scaling", "1", "divides the logits (Granite)"},
    {"dim_model_base", "hidden_size", "divides the logits (MiniCPM)"},
    {"logit_scale lm_head_multiplier", "1", "multiplies the logits (Cohere, Falcon-H1)"},
    {"key_multiplier attention_in_multiplier attention_out_multiplier", "1",
     "multiplies the keys, or attention's input or output (Falcon-H1)"},
    {"mlp_multipliers", "ones", "multiply the feed-forward block (Falcon-H1)"},
    {"attn_logit_softcapping", "", "caps the attention scores (Gemma 2)"},
    {"final_logit_softcapping logits_soft_cap", "", "caps the logits (Gemma 2, RecurrentGemma)"},
    {"clip_qkv", "", "clips q, k and v (OLMo, DBRX)"},
    {"swiglu_limit", "", "clips the feed-forward block (gpt-oss)"},
    {"use_qk_norm qk_norm qk_layernorm use_qk_layernorm", "qk_norm", "enables or disables norms of q and k"},
    {"apply_residual_connection_post_layernorm", "", "moves the residual connection (BLOOM)"},
    {"use_parallel_residual parallel_attn", "",
     "runs attention and feed-forward side by side (GPT-NeoX, Falcon)"},
    {"hidden_activation activation_function", "hidden_act", "names the activation (Gemma, GPT-2)"},
    {"alibi use_alibi", "", "biases attention by distance (ALiBi)"},
    {"position_embedding_type", "rope|rotary", "names another kind of positions"},
    {"use_rope", "true", "leaves RoPE out"},
    {"no_rope_layers", "ones", "leaves RoPE out of layers (SmolLM3, Llama 4)"},
    {"no_rope_layer_interval", "", "leaves RoPE out of layers (SmolLM3, Llama 4)"},
    {"rope_local_base_freq local_rope_theta", "rope_theta", "is another RoPE base for some layers (Gemma 3)"},
    {"rotary_pct rope_pct", "1", "rotates a part of each head (GPT-NeoX, StableLM)"},
    {"rotary_dim", "head_dim", "rotates a part of each head (GPT-J)"},
    {"rotary_emb_base", "10000", "is the RoPE base of GPT-NeoX, instead of rope_theta"},
    {"use_dynamic_ntk", "", "stretches RoPE with the length (Qwen 1)"},
    {"alpha", "1", "stretches RoPE's base (HunYuan)"},
    {"attn_factor", "1",
     "multiplies YaRN's temperature (its first code, where transformers has attention_factor)"},
    {"extrapolation_factor", "1", "weighs YaRN's ramp (its first code)"},
    {"short_mscale long_mscale", "", "scales cos and sin (Phi-3.5-MoE)"},
    {"llama_4_scaling_beta attn_temperature_tuning use_logn_attn", "",
     "scales queries by position (Ministral 3, Llama 4, Qwen 1)"},
    {"is_causal", "true", "lets a token see later ones"},
    {"use_bidirectional_attention", "", "lets a token see later ones"},
    {"is_encoder_decoder add_cross_attention", "", "adds a second sequence to attend to"},
    {"dual_chunk_attention_config attention_chunk_size", "", "attends in chunks (Qwen 2.5 1M, Llama 4)"},
    {"sliding_window_pattern interleaved_sliding_window", "", "mixes windows and full attention (Gemma 3)"},
    {"attention_sinks attention_sink_size", "", "lets all tokens see the first ones, or adds sinks"},
    {"attn_output_gate headwise_attn_output_gate elementwise_attn_output_gate", "",
     "gates attention's output (Qwen3-Next)"},
    {"kv_lora_rank q_lora_rank", "", "compresses queries, keys and values (DeepSeek)"},
    {"v_head_dim", "head_dim", "sets a separate size for values (DeepSeek)"},
    {"num_kv_shared_layers", "", "shares keys and values between layers (Gemma 3n)"},
    {"linear_num_value_heads", "", "adds layers of linear attention (Qwen3-Next)"},
    {"attn_config", "", "describes another kind of attention (MPT, DBRX)"},
    {"per_layer_config block_configs", "", "sets layer shapes separately (Nemotron)"},
    {"use_moe", "", "adds experts"},
    {"num_experts num_local_experts num_experts_per_tok moe_num_experts", "1|dense",
     "is a number of experts (Mixtral)"},
    {"n_routed_experts n_shared_experts num_shared_experts", "dense", "is a number of experts (DeepSeek)"},
    {"moe_intermediate_size moe_layers", "dense", "describes experts"},
};

// Keys with their own warning, or with a redundant value in many models.
constexpr std::string_view kUnknown = "not a key of this architecture; ignored";
constexpr KeyRule kWarned[] = {
    {"sliding_window", "", "ignored, as in transformers: this architecture attends to all positions"},
    {"use_sliding_window", "sliding", "ignored, as in transformers: sliding_window alone decides"},
    {"attention_bias mlp_bias", "", "ignored, as in transformers: no such biases here"},
    {"auto_map", "", "custom code, never run: results differ if the code differs from transformers' class"},
    {"n_inner", "intermediate_size", kUnknown},
    {"n_group topk_group embedding_fraction", "1", kUnknown},
    {"norm_type", "low_precision_layernorm|layer_norm", kUnknown},
    {"mlp_type", "default", kUnknown},
    {"scale_attn_weights scale_attention_softmax_in_fp32", "true", kUnknown},
    {"norm_topk_prob", "true", kUnknown},
    {"activation", "swiglu", kUnknown},
};

// Keys about training, other files or implementation. * matches anything.
constexpr std::string_view kHarmlessKeys =
    "_* *_token_id *dropout *_pdrop *_loss_coef vision_config transformers_version torch_dtype "
    "initializer_range init_device use_cache cache_implementation attn_implementation flash_attn "
    "pretraining_tp ep_size aux_loss_alpha seq_aux output_router_logits max_window_layers model_max_length "
    "max_sequence_length tokenizer_class tokenizer_name id2label label2id verbose "
    "attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion skip_bias_add* offset_alibi "
    "learned_pos_emb attn_impl img_processor embd_layer summary_* task_specific_params";

// JSON may hold a number in fewer digits than the model.
bool is_near(const Json& value, double wanted) {
  return value.is_number() && std::fabs(value.get<double>() - wanted) <= 1e-6 * std::fabs(wanted);
}

// Returns a known value, a number or true, else null.
Json value_of(std::string_view word, const KeyValues& known) {
  if (const auto found = known.find(word); found != known.end()) return found->second;
  const Json literal = Json::parse(word, nullptr, false);
  return literal.is_discarded() ? Json() : literal;
}

bool agrees(const Json& value, std::string_view word, const JsonFields& object, const KeyValues& known) {
  if (word == "dense") return object.find("use_moe") != nullptr && *object.find("use_moe") == false;
  if (word == "ones") {
    return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& item) {
             return is_near(item, 1.0) || item == true;
           });
  }
  const Json own = value_of(word, known);
  if (word == "hidden_act") {
    const auto activation = value.is_string() ? find_activation(value.get<std::string>()) : std::nullopt;
    return activation && own == static_cast<int>(*activation);
  }
  if (value.is_string()) return value.get<std::string>() == word;
  return own.is_boolean() ? value == own : own.is_number() && is_near(value, own.get<double>());
}

// false counts as a missing key, unless the model's value is true.
bool is_neutral(const Json& value, std::string_view neutral, const JsonFields& object,
                const KeyValues& known) {
  const bool decides = value.is_boolean() && value_of(neutral, known) == true;
  if (!is_set(&value) && !decides) return true;
  const auto words = split(neutral, '|');
  return std::ranges::any_of(words, [&](auto word) { return agrees(value, word, object, known); });
}

const KeyRule* find_rule(std::span<const KeyRule> rules, std::string_view key) {
  const auto rule = std::ranges::find_if(rules, [&](const KeyRule& r) { return has_name(r.keys, key); });
  return rule == rules.end() ? nullptr : &*rule;
}

[[noreturn]] void refuse(const JsonFields& object, const std::string& key, const KeyRule& rule) {
  const std::string first(split(rule.neutral, '|').front());
  const bool no_value = first.empty() || has_name("dense qk_norm hidden_act", first);
  object.fail(key,
              std::string(rule.what) + ", unsupported in this architecture; remove the key" +
                  (no_value ? "" : ", or set it to " + (first == "ones" ? "a list of ones" : first) + ",") +
                  " if the model was trained without it");
}

}  // namespace

std::optional<Activation> find_activation(std::string_view name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  for (const char* tanh : {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}) {
    if (name == tanh) return Activation::kGeluTanh;
  }
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu2") return Activation::kRelu2;
  return std::nullopt;
}

std::span<const KeyRule> refused_keys() { return kRefused; }

void check_unread(const JsonFields& object, const ModelSpec& spec, std::vector<std::string>* warnings) {
  const AttentionSpec& attention = spec.layers.front().attention;
  const FeedForwardSpec& feed_forward = spec.layers.front().feed_forward;
  const KeyValues known = {{"hidden_size", spec.hidden_size},
                           {"head_dim", spec.rope().head_dim},
                           {"qk_head_dim", attention.latent.nope_dim + attention.latent.rope_dim},
                           {"1/sqrt(head_dim)", attention.scale},
                           {"num_key_value_heads", attention.n_kv_heads},
                           {"intermediate_size", feed_forward.intermediate_size},
                           {"rope_theta", spec.rope().theta},
                           {"partial_rotary_factor", spec.rope().partial_rotary_factor},
                           {"hidden_act", static_cast<int>(feed_forward.activation)},
                           {"qk_norm", attention.qk_norm != QkNorm::kNone},
                           {"sliding", attention.sliding_window > 0}};
  check_unread(object, known, warnings);
}

void check_unread(const JsonFields& object, const KeyValues& known, std::vector<std::string>* warnings) {
  constexpr size_t kShown = 8;
  size_t unknown = 0;
  const auto warn = [&](const std::string& line) {
    if (warnings != nullptr) warnings->push_back(line);
  };
  for (const std::string& key : object.unread_keys()) {
    const Json* value = object.find(key);
    if (value == nullptr || has_match(kHarmlessKeys, key)) continue;
    if (const KeyRule* rule = find_rule(kRefused, key)) {
      if (!is_neutral(*value, rule->neutral, object, known)) refuse(object, key, *rule);
      continue;
    }
    const KeyRule* warned = find_rule(kWarned, key);
    const KeyRule rule = warned != nullptr ? *warned : KeyRule{key, key, kUnknown};
    if (is_neutral(*value, rule.neutral, object, known)) continue;
    if (warned == nullptr && ++unknown > kShown) continue;
    warn(object.message(key.substr(0, 60), std::string(rule.what)));
  }
  if (unknown > kShown) {
    warn(object.file() + ": " + std::to_string(unknown - kShown) +
         " more keys are not keys of this architecture; ignored");
  }
}

}  // namespace lariat
