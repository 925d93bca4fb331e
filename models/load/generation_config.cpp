#include "models/load/generation_config.h"

#include <algorithm>

#include "models/families/family.h"

namespace lariat {
namespace {

// Unsupported keys that change transformers' output.
constexpr std::string_view kNotDone =
    "suppress_tokens begin_suppress_tokens bad_words_ids force_words_ids constraints sequence_bias "
    "forced_bos_token_id forced_eos_token_id no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty exponential_decay_length_penalty guidance_scale token_healing "
    "watermarking_config min_length min_new_tokens max_time num_beams num_beam_groups num_return_sequences "
    "penalty_alpha dola_layers typical_p top_h epsilon_cutoff eta_cutoff";
constexpr std::string_view kNeutralAtOne =
    "encoder_repetition_penalty guidance_scale num_beams num_beam_groups num_return_sequences typical_p";

// Keys that do not change the text, or that the caller sets (length).
constexpr std::string_view kHarmless =
    "max_length max_new_tokens "
    "early_stopping length_penalty diversity_penalty low_memory "
    "renormalize_logits remove_invalid_values "
    "bos_token_id pad_token_id decoder_start_token_id "
    "use_cache cache_implementation cache_config max_cache_len prefill_chunk_size compile_config "
    "disable_compile continuous_batching_config "
    "use_mtp is_assistant num_assistant_tokens num_assistant_tokens_schedule "
    "assistant_confidence_threshold assistant_early_exit assistant_lookbehind target_lookbehind "
    "assistant_ensemble_weight prompt_lookup_num_tokens max_matching_ngram_size speculation_type "
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate "
    "_from_model_config _commit_hash transformers_version";

void add_names(const std::string& names, const JsonFields& json, const std::string& what, ModelSpec& spec) {
  if (!names.empty()) spec.generation.warnings.push_back(json.file() + ": " + what + ": " + names);
}

std::string& append(std::string& names, std::string_view key) {
  return names += (names.empty() ? "" : ", ") + std::string(key.substr(0, 60));
}

std::vector<std::string> read_stop_strings(const JsonFields& json) {
  const nlohmann::json* value = json.find("stop_strings");
  if (value == nullptr) return {};
  std::vector<std::string> stops =
      value->is_string() ? std::vector{value->get<std::string>()} : *json.strings("stop_strings");
  std::erase(stops, "");
  return stops;
}

template <class T, class Read>
void read_setting(Setting<T>& setting, const Read& read) {
  try {
    setting.value = static_cast<T>(read());
  } catch (const Error& e) {
    setting.error = e.what();
  }
}

}  // namespace

void read_generation_keys(const JsonFields& json, ModelSpec& spec) {
  GenerationDefaults& defaults = spec.generation;
  const auto read = [&](Setting<float>& setting, const char* key, double lo, double hi) {
    read_setting(setting, [&] { return json.number(key, lo, hi).value_or(setting.value); });
  };
  // transformers samples only if do_sample is true in Python, then with top_k 50 by default, and ignores a
  // top_p above 1. vLLM writes top_k -1 for all tokens.
  const bool sampled = is_set(json.find("do_sample"));
  defaults.temperature.value = 1.0F;
  read(defaults.temperature, "temperature", 0.0, 1000.0);
  if (!sampled) defaults.temperature = {};
  defaults.top_k.value = sampled ? 50 : 0;
  read_setting(defaults.top_k, [&] {
    return std::max<int64_t>(json.integer("top_k", -1, int64_t{1} << 30).value_or(defaults.top_k.value), 0);
  });
  const nlohmann::json* top_p = json.find("top_p");
  if (top_p == nullptr || !top_p->is_number() || *top_p <= 1) read(defaults.top_p, "top_p", 0.0, 1.0);
  read(defaults.min_p, "min_p", 0.0, 1.0);
  read(defaults.repetition_penalty, "repetition_penalty", 0.01, 100.0);
  read_setting(defaults.stop, [&] { return read_stop_strings(json); });
  std::string ignored;
  for (const std::string_view key : split(kNotDone, ' ')) {
    const nlohmann::json* value = json.find(key);
    const bool neutral = value != nullptr && *value == 1 && has_name(kNeutralAtOne, key);
    const bool token = value != nullptr && *value == 0 && key.starts_with("forced_");
    if ((is_set(value) && !neutral) || token) append(ignored, key);
  }
  add_names(ignored, json, "ignored, but transformers uses them", spec);
}

void read_generation_config(const ModelTexts& texts, ModelSpec& spec) {
  const std::string file = texts.file("generation_config.json").string();
  const JsonFields json(texts.object("generation_config.json"), file, "",
                        texts.wording(JsonFields::with_value));
  // transformers' generate() also replaces config.json's generation keys.
  spec.generation = {};
  read_generation_keys(json, spec);
  if (json.has("eos_token_id")) spec.eos_token_ids.clear();
  add_eos_tokens(json, spec);
  if (texts.has("qwen.tiktoken")) json.mark_read("chat_format");  // used by ChatTemplate::load
  std::string unknown;
  for (const std::string& key : json.unread_keys()) {
    if (!has_name(kHarmless, key)) append(unknown, key);
  }
  add_names(unknown, json, "ignored, as transformers knows no such keys", spec);
}

}  // namespace lariat
