#include "models/rope_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"
#include "models/io/json_fields.h"

namespace lariat {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

RopeDefaults defaults() {
  RopeDefaults c;
  c.head_dim = 64;
  c.max_position_embeddings = 8192;
  return c;
}

RopeScaling read(const json& config) { return read_rope(JsonFields(config, "config.json"), defaults()); }
RopeScaling scaled(const json& scaling) { return read({{"rope_scaling", scaling}}); }

std::string error(const json& config) {
  try {
    read(config);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_error(const json& scaling, const std::string& key, const std::string& part = "") {
  const std::string what = error({{"rope_scaling", scaling}});
  EXPECT_EQ(what.find("config.json: \"rope_scaling." + key + "\""), 0U) << scaling.dump() << " -> " << what;
  EXPECT_NE(what.find(part), std::string::npos) << what;
}

TEST(RopeConfig, OldAndNewSpellingsMeanTheSame) {
  const RopeScaling want =
      read({{"rope_theta", 5e5}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}}});
  EXPECT_EQ(want.type, RopeType::kLinear);
  EXPECT_EQ(want.theta, 5e5);
  EXPECT_EQ(want.factor, 4.0);
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}), want);
  const json object = {{"rope_theta", 5e5}, {"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(read({{"rope_parameters", object}}), want);
  EXPECT_EQ(read({{"rope_parameters", object}, {"rope_scaling", nullptr}, {"rope_theta", 1e4}}), want);
  EXPECT_EQ(read({{"rope_parameters", object}, {"rope_scaling", json::object()}}), want);
  EXPECT_EQ(read({{"rope_parameters", {{"full_attention", object}, {"sliding_attention", object}}}}), want);
}

TEST(RopeConfig, Precedence) {
  // rope_type over type, rope_scaling over rope_parameters, the object's theta over the top level's.
  EXPECT_EQ(scaled({{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}}).type, RopeType::kLinear);
  const RopeScaling both =
      read({{"rope_theta", 1e5},
            {"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
            {"rope_parameters", {{"rope_type", "ntk"}, {"factor", 3}, {"rope_theta", 2e5}}}});
  EXPECT_EQ(both.type, RopeType::kLinear);
  EXPECT_EQ(both.theta, 1e5);
  EXPECT_EQ(read({{"rope_theta", 1e5}, {"rope_parameters", {{"rope_theta", 2e5}}}}).theta, 2e5);
  EXPECT_EQ(read(json::object()).rotary_dim, 64);
  EXPECT_TRUE(read({{"rope_interleaved", true}}).interleaved);
  EXPECT_TRUE(read({{"rope_interleave", true}}).interleaved);
}

TEST(RopeConfig, OriginalLength) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4}};
  json own = yarn;
  own["original_max_position_embeddings"] = 2048;
  EXPECT_EQ(scaled(yarn).original_ctx, 8192);
  // The top level does not reach into nested objects.
  EXPECT_EQ(read({{"original_max_position_embeddings", 1024}, {"rope_parameters", {{"full_attention", own}}}})
                .original_ctx,
            2048);
  // dynamic stretches from max_position_embeddings whatever stands there.
  own["rope_type"] = "dynamic";
  EXPECT_EQ(read({{"original_max_position_embeddings", 1024}, {"rope_scaling", own}}).original_ctx, 8192);
  // max_position_embeddings may have been lowered to save memory.
  own["rope_type"] = "yarn";
  own["original_max_position_embeddings"] = 8193;
  EXPECT_EQ(scaled(own).original_ctx, 8193);
  EXPECT_EQ(read({{"original_max_position_embeddings", 9000}, {"rope_scaling", yarn}}).original_ctx, 9000);
  expect_error({{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 2048.5}},
               "original_max_position_embeddings");
}

TEST(RopeConfig, Factors) {
  for (const char* type : {"linear", "ntk", "dynamic", "yarn", "llama3"}) {
    expect_error({{"rope_type", type}}, "factor");
    if (std::string(type) != "yarn") expect_error({{"rope_type", type}, {"factor", 0.99}}, "factor");
    expect_error({{"rope_type", type}, {"factor", "4"}}, "factor");
    expect_error({{"rope_type", type}, {"factor", 1e7}}, "factor");
  }
  for (const char* type : {"linear", "ntk", "dynamic"})
    expect_error({{"rope_type", type}, {"factor", nullptr}}, "factor");
  EXPECT_EQ(scaled({{"rope_type", "yarn"}, {"factor", 0.5}}).factor, 0.5);  // transformers warns and runs it
  EXPECT_EQ(rope_frequencies(scaled({{"rope_type", "yarn"}, {"factor", 0.5}}), 1).attention_factor, 1.0);
  EXPECT_EQ(scaled({{"rope_type", "dynamic-yarn"}}).factor, 1.0);
  EXPECT_EQ(scaled({{"rope_type", "dynamic-yarn"}, {"factor", 4}}).factor, 4.0);
  EXPECT_EQ(scaled({{"rope_type", "proportional"}}).factor, 1.0);
  EXPECT_EQ(scaled({{"rope_type", "default"}, {"factor", 4}}).factor, 1.0);
}

TEST(RopeConfig, Yarn) {
  const RopeScaling rope = scaled({{"rope_type", "yarn"},
                                   {"factor", 40},
                                   {"beta_fast", 16},
                                   {"beta_slow", 2},
                                   {"mscale", 0.707},
                                   {"mscale_all_dim", 1.0},
                                   {"truncate", false},
                                   {"attention_factor", 1.25}});
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 2.0);
  EXPECT_EQ(rope.mscale, 0.707);
  EXPECT_EQ(rope.mscale_all_dim, 1.0);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(rope.attention_factor, 1.25);
  expect_error({{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 1}, {"beta_slow", 2}}, "beta_fast");
  expect_error({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 0}}, "attention_factor");
  expect_error({{"rope_type", "yarn"}, {"factor", 4}, {"truncate", 1}}, "truncate");
  expect_error({{"rope_type", "dynamic-yarn"}, {"finetuned", true}}, "finetuned");
}

TEST(RopeConfig, Llama3) {
  const json good = {{"rope_type", "llama3"},
                     {"factor", 8},
                     {"low_freq_factor", 1},
                     {"high_freq_factor", 4},
                     {"original_max_position_embeddings", 2048}};
  EXPECT_EQ(scaled(good).high_freq_factor, 4.0);
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    json bad = good;
    bad.erase(key);
    expect_error(bad, key, "is missing");
    bad[key] = 0;
    expect_error(bad, key);
  }
  json bad = good;
  bad["high_freq_factor"] = 1;
  expect_error(bad, "high_freq_factor");
}

TEST(RopeConfig, LongRope) {
  const json good = {{"rope_type", "longrope"},
                     {"short_factor", std::vector<double>(32, 1.0)},
                     {"long_factor", std::vector<double>(32, 4.0)},
                     {"original_max_position_embeddings", 2048}};
  EXPECT_EQ(scaled(good).factor, 4.0);
  EXPECT_EQ(scaled(good).long_factor[31], 4.0);
  for (const char* key : {"short_factor", "long_factor"}) {
    json bad = good;
    bad.erase(key);
    expect_error(bad, key);
    bad[key] = std::vector<double>(31, 1.0);
    expect_error(bad, key, "has 31 values; expected 32");
    bad[key] = std::vector<double>(32, 0.0);
    expect_error(bad, key, "item 0 is 0");
    bad[key] = "x";
    expect_error(bad, key);
  }
  json partial = good;
  partial["partial_rotary_factor"] = 0.5;
  expect_error(partial, "short_factor", "expected 16");
}

TEST(RopeConfig, NothingIsGuessed) {
  expect_error({{"rope_type", "sun"}, {"factor", 4}}, "rope_type", "known types: default, linear");
  expect_error({{"rope_type", "su"}, {"factor", 4}}, "short_factor", "longrope scaling needs it");
  expect_error({{"type", "mrope"}, {"mrope_section", {1, 2}}}, "mrope_section", "the sections have 3 pairs");
  expect_error({{"type", "none"}}, "type");
  expect_error({{"type", 3}}, "type");
  expect_error({{"factor", 4}}, "rope_type", "is missing");
  EXPECT_NE(error({{"rope_scaling", "yarn"}}).find("\"rope_scaling\" is \"yarn\"; expected an object"),
            std::string::npos);
  EXPECT_NE(error({{"rope_theta", 1}}).find("\"rope_theta\" is 1; expected a number above 1"),
            std::string::npos);
  EXPECT_NE(error({{"rope_theta", "1e4"}}).find("\"rope_theta\""), std::string::npos);
  EXPECT_NE(error({{"rope_theta", 1e16}}).find("\"rope_theta\""), std::string::npos);
  EXPECT_NE(
      error({{"partial_rotary_factor", 0.01}}).find("\"partial_rotary_factor\" is 0.01; rotates 0 of 64"),
      std::string::npos);
  EXPECT_NE(error({{"partial_rotary_factor", 1.5}}).find("\"partial_rotary_factor\""), std::string::npos);
  EXPECT_NE(error({{"partial_rotary_factor", 0}}).find("\"partial_rotary_factor\""), std::string::npos);
}

TEST(RopeConfig, ThetaOfNull) {
  EXPECT_NE(error({{"rope_theta", nullptr}}).find("\"rope_theta\" is null"), std::string::npos);
  EXPECT_NE(
      error({{"rope_parameters", {{"rope_theta", nullptr}}}}).find("\"rope_parameters.rope_theta\" is null"),
      std::string::npos);
  EXPECT_EQ(read({{"rope_theta", nullptr}, {"rope_parameters", {{"rope_theta", 2e5}}}}).theta, 2e5);
}

TEST(RopeConfig, LayerTypesMustAgree) {
  const json a = {{"rope_type", "default"}, {"rope_theta", 1e4}},
             b = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_NE(error({{"rope_parameters", {{"full_attention", a}, {"sliding_attention", b}}}})
                .find("\"rope_parameters.sliding_attention\" is"),
            std::string::npos);
  EXPECT_NE(error({{"rope_parameters", {{"full_attention", a}, {"sliding_attention", nullptr}}}})
                .find("objects only"),
            std::string::npos);
}

TEST(RopeConfig, OfAConfigOfAnyFamily) {
  const fs::path file = fs::temp_directory_path() / ("lariat_rope_" + std::to_string(getpid()) + ".json");
  std::vector<std::string> warnings;
  const auto rope = [&](const json& config) {
    warnings.clear();
    std::ofstream(file) << config.dump();
    return load_rope(file, warnings);
  };
  const json gemma = {{"architectures", {"Gemma3ForCausalLM"}},
                      {"head_dim", 256},
                      {"rope_theta", 1e6},
                      {"max_position_embeddings", 32768},
                      {"rope_local_base_freq", 1e4},
                      {"hidden_act", "gelu"}};
  EXPECT_EQ(rope(gemma).rotary_dim, 256);
  EXPECT_EQ(warnings.size(), 1U);
  const json plain = {{"hidden_size", 512}, {"num_attention_heads", 8}, {"max_position_embeddings", 64}};
  EXPECT_EQ(rope(plain).rotary_dim, 64);
  EXPECT_EQ(rope({{"head_dim", 576}, {"qk_rope_head_dim", 64}, {"max_position_embeddings", 64}}).head_dim,
            64);
  const json vision = {{"text_config", {{"model_type", "llama"}, {"rope_theta", 5e5}}},
                       {"model_type", "llava"}};
  EXPECT_EQ(rope(vision).theta, 5e5);
  EXPECT_EQ(rope(vision).head_dim, 128);
  // A family's defaults and rules hold where it is known, and what else its config says does not matter.
  EXPECT_EQ(rope({{"model_type", "minimind"}, {"inference_rope_scaling", true}, {"use_moe", true}}).type,
            RopeType::kYarn);
  EXPECT_EQ(
      rope({{"model_type", "qwen2"}, {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}}})
          .type,
      RopeType::kDefault);
  EXPECT_THROW(rope({{"model_type", "x"}, {"rope_theta", 1e4}}), Error);
  EXPECT_THROW(rope({{"model_type", "x"}, {"head_dim", 64}}), Error);
  fs::remove(file);
}

}  // namespace
}  // namespace lariat
