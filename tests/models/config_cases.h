#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/error.h"
#include "models/io/json_file.h"
#include "models/load/config.h"
#include "models/text/unicode.h"
#include "tests/test_util.h"

namespace lariat::test {

using nlohmann::json;

inline std::filesystem::path golden_file(const std::string& name) {
  return source_dir() / "tests" / "golden" / name;
}

// A golden checkpoint's config, or a minimal one.
inline json config_of(const std::string& base) {
  const auto file = golden_file("checkpoints/" + base + "/config.json");
  return std::filesystem::exists(file) ? read_json(file) : json{{"architectures", {base}}};
}

// Sets members, also nested ones; "absent" removes one. Changes text_config of multimodal models.
inline json changed(json config, const json& changes) {
  json& object = config.contains("text_config") ? config["text_config"] : config;
  for (const auto& [key, value] : changes.items()) {
    if (value == "absent") {
      object.erase(key);
    } else {
      const bool both = value.is_object() && object.contains(key) && object[key].is_object();
      object[key] = both ? changed(object[key], value) : value;
    }
  }
  return config;
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<int>(value));
  } else if constexpr (requires { value.has_value(); }) {
    return value ? text_of(*value) : "none";
  } else if constexpr (requires { value.begin(); } && !std::is_convertible_v<T, std::string_view>) {
    std::string all;
    for (const auto& one : value) all += (all.empty() ? "" : ",") + text_of(one);
    return all;
  } else {
    return fmt::format("{}", value);
  }
}

// Returns "section: name=value name=value ...".
template <class... T>
std::string fields_of(const std::string& section, const std::string& names, const T&... values) {
  std::istringstream in(names);
  std::string line = section + ":", name;
  ((in >> name, line += " " + name + "=" + text_of(values)), ...);
  EXPECT_TRUE(in && !(in >> name)) << section << " needs one name per field";
  return line + "\n";
}

inline std::string described(const RopeScaling& r, const std::string& section = "rope") {
  const auto& [type, head_dim, partial, rotary_dim, odd, theta, interleaved, factor, original_ctx, longest,
               beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim, truncate, own_steps, low, high,
               short_factor, long_factor] = r;
  return fields_of(
      section,
      "type head_dim partial_rotary_factor rotary_dim odd theta interleaved factor original_ctx "
      "max_position_embeddings beta_fast beta_slow attention_factor mscale mscale_all_dim truncate "
      "own_steps low_freq_factor high_freq_factor short_factor long_factor",
      name_of(type), head_dim, partial, rotary_dim, odd, theta, interleaved, factor, original_ctx, longest,
      beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim, truncate, own_steps, low, high,
      short_factor, long_factor);
}

inline std::string described(const LayerSpec& layer) {
  std::string line;
  each_field(layer, [&](const auto&... fields) {
    line =
        fields_of("",
                  "n_heads n_kv_heads head_dim qkv_bias o_bias qk_norm rope scale clip softcap window sinks "
                  "q_rank kv_rank rope_dim nope_dim v_dim latent_eps intermediate_size activation gated "
                  "mlp_bias experts expert_size choice_bias expert_bias shared_router chosen sigmoid groups "
                  "kept_groups "
                  "normalise router_scale norm_before norm_after parallel residual_multiplier",
                  fields...);
  });
  return line;
}

// Every field that affects the computation; equal layers get equal letters: A, B, ...
inline std::string described(const ModelSpec& s) {
  std::string kinds, layers;
  std::vector<std::string> lines;
  for (const LayerSpec& layer : s.layers) {
    const std::string line = described(layer);
    const auto kind = std::ranges::find(lines, line) - lines.begin();
    kinds += static_cast<char>('A' + kind);
    if (kind < std::ssize(lines)) continue;
    lines.push_back(line);
    layers += fmt::format("layer {}{}", kinds.back(), line);
  }
  std::string all =
      fields_of("model",
                "family max_position_embeddings qk_norm_if_stored alibi_slopes mrope_axes "
                "position_method dtype bos eos "
                "bias_keys layers unread_layers head_bias q v gate up qkv_by_kv_head unit_head_rows "
                "learned_positions unit_norms swapped_halves",
                s.family, s.max_position_embeddings, s.qk_norm_if_stored, s.alibi_slopes, s.mrope_axes,
                s.position_method.name, name_of(s.dtype), s.bos_token_id, s.eos_token_ids,
                replace_all(s.bias_keys, " ", ","), kinds, s.n_unread_layers, s.head_bias, s.names.q,
                s.names.v, s.names.gate, s.names.up, s.names.qkv_by_kv_head, s.unit_head_rows,
                s.learned_positions, s.unit_norms, s.names.swapped_halves);
  each_field(s, [&](const auto&... fields) {
    all += fields_of("numbers",
                     "vocab_size hidden_size norm_eps layer_norm norm_bias embedding_norm norm_plus_one tied "
                     "embedding_multiplier round_embedding_multiplier logits_multiplier logits_softcap "
                     "scores_take_mscale log_beta log_ctx log_steps",
                     fields...);
  });
  for (size_t i = 0; i < s.ropes.size(); ++i) all += described(s.ropes[i], i == 0 ? "rope" : "rope 1");
  return all + layers;
}

struct Answer {
  std::optional<ModelSpec> spec;
  std::string error;
};

inline Answer answer_to(const std::string& text) {
  try {
    return {parse_config(text, "config.json"), ""};
  } catch (const Error& e) {
    return {std::nullopt, e.what()};
  }
}
inline Answer answer(const json& config) { return answer_to(config.dump()); }

inline void expect_line(const std::string& line, const std::string& file, std::string_view words) {
  EXPECT_EQ(line.rfind(file + ": ", 0), 0U) << "does not begin with the file: " << line;
  EXPECT_TRUE(names(line, words));
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

inline std::string of_an_unknown_key() {
  const std::string line = answer(changed(config_of("llama_gqa"), {{"unheard_of", 3}})).spec->warnings.at(0);
  return line.substr(line.rfind('3') + 1);
}

}  // namespace lariat::test
