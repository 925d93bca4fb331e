#include <fmt/format.h>

#include <algorithm>

#include "models/gguf/gguf_model.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::json;

// Hugging Face keys, each followed by the GGUF key without the architecture (llama.cpp, src/llama-arch.cpp).
// An unread GGUF key gets its first Hugging Face name: a family reads it, or the gate refuses it.
constexpr std::string_view kKeys =
    "is_causal attention.causal alibi attention.max_alibi_bias attention_out_multiplier "
    "attention.output_scale llama_4_scaling_beta attention.temperature_scale num_kv_shared_layers "
    "attention.shared_kv_layers q_lora_rank attention.q_lora_rank kv_lora_rank attention.kv_lora_rank "
    "attn_factor rope.scaling.attn_factor extrapolation_factor rope.scaling.yarn_ext_factor "
    "use_parallel_residual use_parallel_residual n_shared_experts expert_shared_count "
    "moe_intermediate_size expert_feed_forward_length norm_topk_prob expert_weights_norm temperature "
    "general.sampling.temp top_k general.sampling.top_k top_p general.sampling.top_p min_p "
    "general.sampling.min_p repetition_penalty general.sampling.penalty_repeat clip_qkv "
    "attention.clamp_kqv rope_local_base_freq rope.freq_base_swa embedding_multiplier embedding_scale "
    "residual_multiplier residual_scale logits_scaling logit_scale attn_logit_softcapping "
    "attn_logit_softcapping final_logit_softcapping final_logit_softcapping first_k_dense_replace "
    "leading_dense_block_count routed_scaling_factor expert_weights_scale n_group expert_group_count "
    "topk_group expert_group_used_count attention_multiplier attention.scale architectures "
    "general.architecture model_type general.architecture hidden_size embedding_length num_hidden_layers "
    "block_count intermediate_size feed_forward_length num_attention_heads attention.head_count "
    "num_key_value_heads attention.head_count_kv head_dim attention.key_length max_position_embeddings "
    "context_length rms_norm_eps attention.layer_norm_rms_epsilon layer_norm_eps "
    "attention.layer_norm_epsilon norm_epsilon attention.layer_norm_epsilon norm_eps "
    "attention.layer_norm_epsilon logit_scale logit_scale "
    "sliding_window attention.sliding_window "
    "layer_types attention.sliding_window_pattern query_pre_attn_scalar attention.scale v_head_dim "
    "attention.value_length_mla qk_nope_head_dim attention.key_length_mla qk_rope_head_dim "
    "rope.dimension_count partial_rotary_factor rope.dimension_count rope_theta rope.freq_base "
    "original_max_position_embeddings rope.scaling.original_context_length "
    "rope_scaling.original_max_position_embeddings rope.scaling.original_context_length "
    "rope_scaling.attention_factor rope.scaling.yarn_attn_factor rope_scaling.beta_fast "
    "rope.scaling.yarn_beta_fast rope_scaling.beta_slow rope.scaling.yarn_beta_slow rope_scaling.mscale "
    "rope.scaling.yarn_log_multiplier rope_scaling.mscale_all_dim rope.scaling.yarn_log_multiplier "
    "rope_scaling.factor rope.scaling.factor rope_scaling rope.scaling.type num_experts expert_count "
    "num_local_experts expert_count n_routed_experts expert_count num_experts_per_tok expert_used_count "
    "bos_token_id tokenizer.ggml.bos_token_id eos_token_id tokenizer.ggml.eos_token_id add_bos_token "
    "tokenizer.ggml.add_bos_token add_eos_token tokenizer.ggml.add_eos_token chat_template "
    "tokenizer.chat_template scoring_func expert_gating_func layer_norm_epsilon "
    "attention.layer_norm_epsilon n_inner feed_forward_length";

// Returns the other word of the first pair whose word `side` (0, 1) fits; empty: none.
std::string_view partner(std::string_view pairs, size_t side, const auto& fits) {
  const auto words = split(pairs, ' ');
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    if (fits(words[i + side])) return words[i + 1 - side];
  }
  return {};
}

// An array becomes its number of values.
Json value_of(const GgufFile& file, const std::string& key, const GgufValue& value) {
  if (value.array) return fmt::format("{} values", value.count);
  if (value.kind == GgufKind::kString) return valid_utf8(*file.string(key));
  if (value.kind == GgufKind::kBool) return *file.boolean(key);
  if (value.kind == GgufKind::kF32 || value.kind == GgufKind::kF64) return *file.number(key);
  return *file.integer(key);
}

}  // namespace

void gguf_add_unread(const GgufFile& file, std::string_view prefix, std::string_view known, Json& json) {
  const GgufFile copy{file.path, file.metadata, {}};  // its keys stay unread in `file`
  for (const auto& [key, value] : file.metadata) {
    if (!key.starts_with(prefix) || file.was_read(key)) continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (has_match(known, name)) continue;
    const Json found = value_of(copy, key, value);
    const auto is_it = [&, whole = std::string_view(key)](auto own) { return own == name || own == whole; };
    if (const auto same = partner(kKeys, 1, is_it); !same.empty()) {
      json.emplace(same, found);
    } else if (is_set(&found)) {
      json[valid_utf8(key)] = found;
    }
  }
}

JsonFields::Wording gguf_wording(const GgufFile& file) {
  const std::string arch(file.string("general.architecture").value_or(""));
  return
      [arch](const std::string& name, const std::string& path, const Json* value, const std::string& what) {
        const auto is_it = [&](std::string_view key) {
          const char next = path.c_str()[std::min(key.size(), path.size())];
          return path.starts_with(key) && (next == '\0' || next == '.' || next == '[');
        };
        std::string own(partner(kKeys, 0, is_it));
        if (own.empty()) return JsonFields::with_key(name, path, value, what);
        const bool whole = own.starts_with("general.") || own.starts_with("tokenizer.");
        return JsonFields::with_key(name, whole ? own : arch + "." + own, value, what);
      };
}

Json gguf_generation_config(const GgufFile& file) {
  Json json = Json::object();
  gguf_add_unread(file, "general.sampling.", "", json);
  const Json temperature = json.value("temperature", Json(1.0));
  if (!json.empty()) json["do_sample"] = !temperature.is_number() || temperature > 0.0;
  return json;
}

}  // namespace lariat
