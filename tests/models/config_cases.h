#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"
#include "models/io/json_file.h"
#include "tests/test_util.h"

// Configs that are changed in one place, and what lariat makes of them, both as JSON.
namespace lariat::test {

using nlohmann::json;

inline std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(LARIAT_SOURCE_DIR) / "tests" / "golden" / name;
}

// The config of a checkpoint of tests/golden, or one that says no more than that architecture.
inline json config_of(const std::string& base) {
  const auto file = golden_file("checkpoints/" + base + "/config.json");
  return std::filesystem::exists(file) ? read_json(file) : json{{"architectures", {base}}};
}

// Sets members, within objects too; "absent" takes one out. Of a model with an image part its text_config's.
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

inline json described(const RopeScaling& r) {
  return {{"type", name_of(r.type)},
          {"head_dim", r.head_dim},
          {"rotary_dim", r.rotary_dim},
          {"theta", r.theta},
          {"factor", r.factor},
          {"original_ctx", r.original_ctx},
          {"interleaved", r.interleaved},
          {"attention_factor", r.attention_factor.value_or(0.0)},
          {"beta_fast", r.beta_fast},
          {"truncate", r.truncate},
          {"own_steps", r.own_steps},
          {"inv_freq", rope_frequencies(r, 5000.0).inv_freq},
          {"inv_freq_short", rope_frequencies(r, 1.0).inv_freq}};
}

inline json described(const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const FeedForwardSpec& f = layer.feed_forward;
  const Router& router = f.experts.router;
  return {
      {"n_heads", a.n_heads},
      {"n_kv_heads", a.n_kv_heads},
      {"head_dim", a.head_dim},
      {"latent", {a.latent.q_rank, a.latent.kv_rank, a.latent.rope_dim, a.latent.nope_dim, a.latent.v_dim}},
      {"qkv_bias", a.qkv_bias},
      {"o_bias", a.o_bias},
      {"qk_norm", static_cast<int>(a.qk_norm)},
      {"rope", a.rope},
      {"scale", a.scale},
      {"clip", a.clip},
      {"softcap", a.softcap},
      {"sinks", a.sinks},
      {"window", a.sliding_window},
      {"intermediate_size", f.intermediate_size},
      {"activation", static_cast<int>(f.activation)},
      {"gated", f.gated},
      {"mlp_bias", f.bias},
      {"experts", f.experts.n},
      {"expert_size", f.experts.intermediate_size},
      {"chosen", router.n_chosen},
      {"groups", {router.n_groups, router.kept_groups}},
      {"router_scale", router.scale},
      {"sigmoid", router.sigmoid},
      {"normalise", router.normalise},
      {"norm_before", layer.norm_before},
      {"norm_after", layer.norm_after},
      {"parallel", layer.parallel},
      {"residual_multiplier", layer.residual_multiplier}};
}

// Everything of a config that reaches the computation.
inline json described(const ModelSpec& s) {
  json all = {{"family", s.family},
              {"vocab_size", s.vocab_size},
              {"hidden_size", s.hidden_size},
              {"n_layers", s.layers.size()},
              {"max_position_embeddings", s.max_position_embeddings},
              {"norm_eps", s.norm_eps},
              {"layer_norm", s.layer_norm},
              {"norm_bias", s.norm_bias},
              {"embedding_norm", s.embedding_norm},
              {"norm_plus_one", s.norm_plus_one},
              {"tied", s.tie_word_embeddings},
              {"embedding_multiplier", s.embedding_multiplier},
              {"round_embedding_multiplier", s.round_embedding_multiplier},
              {"logits_multiplier", s.logits_multiplier},
              {"logits_softcap", s.logits_softcap},
              {"alibi_slopes", s.alibi_slopes},
              {"scores_take_mscale", s.scores_take_mscale},
              {"mrope_axes", s.mrope_axes},
              {"query_log", {s.query_scale.log_beta, s.query_scale.log_ctx, s.query_scale.log_steps}},
              {"position_method", s.position_method},
              {"dtype", name_of(s.dtype)},
              {"bos", s.bos_token_id.value_or(-1)},
              {"eos", s.eos_token_ids},
              {"names", {s.names.q, s.names.v, s.names.gate, s.names.up}},
              {"qkv_by_kv_head", s.names.qkv_by_kv_head},
              {"rope", described(s.rope())}};
  if (s.ropes.size() > 1) all["local_rope"] = described(s.ropes[1]);
  for (const LayerSpec& layer : s.layers) {
    all["layers"].push_back(described(layer));
    all["windows"].push_back(layer.attention.sliding_window);
  }
  return all;
}

// The members of `expected` that `actual` has otherwise: of objects, items of lists by their number (-1: the
// last), numbers as floats; "" where there are none.
inline std::string difference(const json& actual, const json& expected, const std::string& path = "") {
  if (expected.is_object()) {
    std::string all;
    for (const auto& [key, value] : expected.items()) {
      const bool list = actual.is_array() && !actual.empty();
      const json& found = key == "-1" && list ? actual.back()
                          : list              ? actual.at(std::stoul(key))
                                              : actual.value(json::json_pointer("/" + key), json());
      all += difference(found, value, path + "/" + key);
    }
    return all;
  }
  const bool numbers = actual.is_number() && expected.is_number();
  const bool same = numbers ? actual.get<float>() == expected.get<float>() : actual == expected;
  return same ? "" : path + " is " + actual.dump() + ", expected " + expected.dump() + "\n";
}

// The spec that a config gives or, "" where it gives one, the line that it is refused with.
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

// Whether it is a line that begins with the file, and names the words.
inline void expect_line(const std::string& line, const std::string& file, std::string_view words) {
  EXPECT_EQ(line.rfind(file + ": ", 0), 0U) << "does not begin with the file: " << line;
  EXPECT_TRUE(names(line, words));
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

// How a warning ends of a key that nobody knows.
inline std::string of_an_unknown_key() {
  const std::string line = answer(changed(config_of("llama_gqa"), {{"unheard_of", 3}})).spec->warnings.at(0);
  return line.substr(line.rfind('3') + 1);
}

}  // namespace lariat::test
