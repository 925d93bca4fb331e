#include "engine/rope_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/io/json_fields.h"
#include "models/spec/rope_config.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;

RopeScaling rope_of(const json& scaling = nullptr) {
  RopeDefaults defaults;
  defaults.head_dim = 64;
  defaults.max_position_embeddings = 8192;
  return read_rope(JsonFields({{"rope_theta", 1e4}, {"rope_scaling", scaling}}, "config.json"), defaults);
}

template <class Exception>
std::string refusal_of(const RopeOptions& options) {
  try {
    resolve_rope(rope_of(), options);
  } catch (const Exception& e) {
    return e.what();
  }
  return "accepted";
}

TEST(RopeOptions, AcceptsCommonWords) {
  EXPECT_EQ(parse_rope_type("none"), RopeType::kDefault);
  EXPECT_EQ(parse_rope_type("YaRN"), RopeType::kYarn);
  EXPECT_EQ(parse_rope_type("Dynamic-YaRN"), RopeType::kDynamicYarn);
  EXPECT_EQ(parse_rope_type("su"), RopeType::kLongRope);
  EXPECT_EQ(plain_scaling_name("SU"), "longrope");
  EXPECT_EQ(plain_scaling_name("default"), "none");
  EXPECT_TRUE(known_scalings("|").starts_with("none|linear|ntk|")) << known_scalings("|");
}

TEST(RopeOptions, AScalingStartsFromItsDefaults) {
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}, {"original_max_position_embeddings", 2048}};
  const auto plain = [&](const char* type, double factor, int64_t l0, json more = json::object()) {
    more.update({{"rope_type", type}, {"factor", factor}, {"original_max_position_embeddings", l0}});
    RopeScaling rope = rope_of(more);
    rope.original_ctx = l0;  // dynamic scaling reads it from options only
    return rope;
  };
  const json llama3 = {{"low_freq_factor", 1}, {"high_freq_factor", 4}}, beta = {{"beta_fast", 16}};
  RopeScaling other_theta = rope_of();
  other_theta.theta = 5e5;
  // A model's RoPE object, options, result.
  const std::tuple<json, RopeOptions, RopeScaling> table[] = {
      {nullptr, {}, rope_of()},
      {yarn, {}, rope_of(yarn)},
      {yarn, {.scaling = "yarn"}, rope_of(yarn)},
      {yarn, {.factor = 8.0}, plain("yarn", 8, 2048, beta)},
      {yarn, {.scaling = "yarn", .factor = 8.0}, plain("yarn", 8, 2048, beta)},
      {yarn, {.scaling = "linear", .factor = 2.0}, plain("linear", 2, 2048)},
      {yarn, {.scaling = "dynamic"}, plain("dynamic", 1, 8192)},
      {yarn, {.scaling = "dynamic", .original_ctx = 512}, plain("dynamic", 1, 512)},
      {yarn, {.scaling = "dynamic-yarn"}, plain("dynamic-yarn", 1, 2048)},
      {nullptr, {.scaling = "llama3", .factor = 8.0}, plain("llama3", 8, 8192, llama3)},
      {nullptr, {.theta = 5e5}, other_theta}};
  for (const auto& [own, options, expected] : table)
    EXPECT_EQ(resolve_rope(rope_of(own), options), expected) << own << " " << options.scaling.value_or("");
  for (const char* word : {"none", "default"}) {
    const RopeScaling rope = resolve_rope(rope_of(yarn), {.scaling = word});
    EXPECT_EQ(rope.type, RopeType::kDefault);
    EXPECT_EQ(rope_frequencies(rope, 1e6), rope_unscaled(rope_of(yarn)));
  }
}

TEST(RopeOptions, ErrorsNameTheSetting) {
  std::vector<std::pair<RopeOptions, std::string>> table = {
      {{.scaling = "yarm"}, "`rope_scaling`: unknown RoPE scaling \"yarm\"; known: none, linear"},
      {{.scaling = "longrope", .factor = 4.0}, "`rope_config`"},
      {{.scaling = "none", .factor = 4.0}, "`rope_factor`"},
      {{.factor = 4.0}, "`rope_factor`"},
      {{.scaling = "yarn", .factor = 0.5}, "`rope_factor`"},
      {{.scaling = "yarn", .factor = std::nan("")}, "`rope_factor`"},
      {{.scaling = "yarn", .factor = 2.0, .original_ctx = 0}, "`rope_original_ctx`"},
      {{.scaling = "yarn", .factor = 2.0, .original_ctx = 8193}, "`rope_original_ctx`"},
      {{.theta = 0.0}, "`rope_theta`"}};
  for (const char* type : {"linear", "ntk", "yarn", "llama3", "proportional"})
    table.push_back({{.scaling = type}, "`rope_factor`"});
  for (const auto& [options, words] : table) EXPECT_TRUE(test::names(refusal_of<UsageError>(options), words));
}

class RopeOptionsFile : public FolderTest {
 protected:
  RopeOptions with(const json& content) const {
    put("rope.json", content.dump());
    return {.config = file_};
  }
  const std::filesystem::path file_ = dir_ / "rope.json";
};

TEST_F(RopeOptionsFile, HoldsAnObjectOrAConfig) {
  const json object = {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}, {"rope_theta", 2e4}};
  const RopeScaling rope = resolve_rope(rope_of(), with(object));
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.theta, 2e4);
  EXPECT_EQ(rope.original_ctx, 8192);
  EXPECT_EQ(resolve_rope(rope_of(), with({{"rope_scaling", object}})), rope);
  EXPECT_EQ(resolve_rope(rope_of(), with({{"rope_parameters", object}})), rope);
  // The file's original length alone exceeds the model's.
  json beyond = object;
  beyond["original_max_position_embeddings"] = 32768;
  EXPECT_THROW(resolve_rope(rope_of(), with(beyond)), Error);
  RopeOptions more = with(beyond);
  more.factor = 8.0;
  more.original_ctx = 1024;
  more.theta = 5e5;
  RopeScaling changed = rope;
  changed.factor = 8.0;
  changed.original_ctx = 1024;
  changed.theta = 5e5;
  EXPECT_EQ(resolve_rope(rope_of(), more), changed);
}

TEST_F(RopeOptionsFile, ErrorsNameTheFile) {
  const auto expect = [&](const RopeOptions& options, std::string_view words) {
    const std::string what = refusal_of<Error>(options);
    EXPECT_TRUE(test::names(what, file_.string()));
    EXPECT_TRUE(test::names(what, words));
  };
  expect(with({{"rope_type", "yarn"}}), "factor");
  expect(with({{"hello", 1}}), "rope_type");
  expect(with(json::array()), "JSON");
  RopeOptions both = with({{"rope_type", "linear"}, {"factor", 4}});
  both.scaling = "linear";
  EXPECT_EQ(resolve_rope(rope_of(), both).factor, 4.0);
  both.scaling = "yarn";
  expect(both, "yarn");
  std::filesystem::remove(file_);
  expect(both, "");
}

TEST(RopePresets, AllOfThemLoad) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "configs/rope")) {
    SCOPED_TRACE(entry.path().string());
    RopeScaling model;
    model.head_dim = model.rotary_dim = entry.path().filename().string().starts_with("phi-3") ? 96 : 128;
    model.max_position_embeddings = model.original_ctx = 131072;
    const RopeScaling rope = resolve_rope(model, {.config = entry.path()});
    EXPECT_NE(rope.type, RopeType::kDefault);
    EXPECT_NE(rope_frequencies(rope, 1 << 20).inv_freq, rope_unscaled(rope).inv_freq);
    ++count;
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace lariat::test
