#include "engine/rope_options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/io/json_fields.h"
#include "models/rope_config.h"

namespace lariat {
namespace {

using nlohmann::json;

RopeScaling rope_of(const json& scaling = nullptr) {
  RopeDefaults defaults;
  defaults.head_dim = 64;
  defaults.max_position_embeddings = 8192;
  return read_rope(JsonFields({{"rope_theta", 1e4}, {"rope_scaling", scaling}}, "config.json"), defaults);
}

TEST(RopeOptions, WordsOfPeople) {
  EXPECT_EQ(parse_rope_type("none"), RopeType::kDefault);
  EXPECT_EQ(parse_rope_type("YaRN"), RopeType::kYarn);
  EXPECT_EQ(parse_rope_type("Dynamic-YaRN"), RopeType::kDynamicYarn);
  EXPECT_EQ(parse_rope_type("su"), RopeType::kLongRope);
  EXPECT_EQ(plain_scaling_name("SU"), "longrope");
  EXPECT_EQ(plain_scaling_name("default"), "none");
  EXPECT_TRUE(known_scalings("|").starts_with("none|linear|ntk|")) << known_scalings("|");
}

TEST(RopeOptions, NothingGivenIsTheModelsOwn) {
  const RopeScaling yarn = rope_of({{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}});
  EXPECT_EQ(resolve_rope(yarn, {}), yarn);
  EXPECT_EQ(resolve_rope(rope_of(), {}), rope_of());
}

TEST(RopeOptions, AScalingStartsFromItsDefaults) {
  const RopeScaling yarn = rope_of(
      {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}, {"original_max_position_embeddings", 2048}});
  const RopeScaling linear = resolve_rope(yarn, {.scaling = "linear", .factor = 2.0});
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 2.0);
  EXPECT_EQ(linear.original_ctx, 2048);
  EXPECT_EQ(linear.beta_fast, 32.0);
  const RopeScaling dynamic = resolve_rope(yarn, {.scaling = "dynamic"});
  EXPECT_EQ(dynamic.factor, 1.0);
  EXPECT_EQ(dynamic.original_ctx, 8192);
  EXPECT_EQ(resolve_rope(yarn, {.scaling = "dynamic", .original_ctx = 512}).original_ctx, 512);
  EXPECT_EQ(resolve_rope(yarn, {.scaling = "dynamic-yarn"}).original_ctx, 2048);
  const RopeScaling llama3 = resolve_rope(rope_of(), {.scaling = "llama3", .factor = 8.0});
  EXPECT_EQ(llama3.low_freq_factor, 1.0);
  EXPECT_EQ(llama3.high_freq_factor, 4.0);
  EXPECT_EQ(resolve_rope(rope_of(), {.theta = 5e5}).theta, 5e5);
  EXPECT_EQ(resolve_rope(yarn, {.factor = 8.0}).factor, 8.0);
  // The model's own type keeps its parameters.
  const RopeScaling same = resolve_rope(yarn, {.scaling = "yarn", .factor = 8.0});
  EXPECT_EQ(same.beta_fast, 16.0);
  EXPECT_EQ(same.factor, 8.0);
  EXPECT_EQ(resolve_rope(yarn, {.scaling = "yarn"}), yarn);
  for (const char* word : {"none", "default"}) {
    const RopeScaling rope = resolve_rope(yarn, {.scaling = word});
    EXPECT_EQ(rope.type, RopeType::kDefault);
    EXPECT_EQ(rope_frequencies(rope, 1e6), rope_unscaled(yarn));
  }
}

TEST(RopeOptions, ErrorsNameTheSetting) {
  const auto expect = [](const RopeOptions& options, const std::string& part) {
    try {
      resolve_rope(rope_of(), options);
      ADD_FAILURE() << part;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  for (const char* type : {"linear", "ntk", "yarn", "llama3", "proportional"})
    expect({.scaling = type}, "`rope_factor`");
  expect({.scaling = "yarm"}, "`rope_scaling`: unknown RoPE scaling \"yarm\"; known: none, linear");
  expect({.scaling = "longrope", .factor = 4.0}, "`rope_config`");
  expect({.scaling = "none", .factor = 4.0}, "`rope_factor`");
  expect({.factor = 4.0}, "`rope_factor`");
  expect({.scaling = "yarn", .factor = 0.5}, "`rope_factor`");
  expect({.scaling = "yarn", .factor = std::nan("")}, "`rope_factor`");
  expect({.scaling = "yarn", .factor = 2.0, .original_ctx = 0}, "`rope_original_ctx`");
  expect({.scaling = "yarn", .factor = 2.0, .original_ctx = 8193}, "`rope_original_ctx`");
  expect({.theta = 0.0}, "`rope_theta`");
}

class RopeOptionsFile : public testing::Test {
 protected:
  ~RopeOptionsFile() override { std::filesystem::remove(file_); }
  RopeOptions with(const json& content) const {
    std::ofstream(file_) << content.dump();
    return {.config = file_};
  }
  std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("lariat_rope_options_" + std::to_string(getpid()) + ".json");
};

TEST_F(RopeOptionsFile, HoldsAnObjectOrAConfig) {
  const json object = {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}, {"rope_theta", 2e4}};
  const RopeScaling rope = resolve_rope(rope_of(), with(object));
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.theta, 2e4);
  EXPECT_EQ(rope.original_ctx, 8192);
  EXPECT_EQ(resolve_rope(rope_of(), with({{"rope_scaling", object}})), rope);
  EXPECT_EQ(resolve_rope(rope_of(), with({{"rope_parameters", object}})), rope);
  RopeOptions more = with(object);
  more.factor = 8.0;
  more.original_ctx = 1024;
  more.theta = 5e5;
  const RopeScaling changed = resolve_rope(rope_of(), more);
  EXPECT_EQ(changed.factor, 8.0);
  EXPECT_EQ(changed.original_ctx, 1024);
  EXPECT_EQ(changed.theta, 5e5);
}

TEST_F(RopeOptionsFile, AnOriginalLengthGivenBeatsTheFiles) {
  RopeOptions options =
      with({{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32768}});
  EXPECT_THROW(resolve_rope(rope_of(), options), Error);
  options.original_ctx = 4096;
  EXPECT_EQ(resolve_rope(rope_of(), options).original_ctx, 4096);
}

TEST_F(RopeOptionsFile, ErrorsNameTheFile) {
  const auto expect = [&](const RopeOptions& options, const std::string& part) {
    try {
      resolve_rope(rope_of(), options);
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(file_.string()), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  expect(with({{"rope_type", "yarn"}}), "\"factor\" is missing");
  expect(with(json::object()), "\"rope_type\" is missing");
  expect(with({{"hello", 1}}), "\"rope_type\" is missing");
  expect(with(json::array()), "expected a JSON object");
  RopeOptions both = with({{"rope_type", "linear"}, {"factor", 4}});
  both.scaling = "yarn";
  expect(both, "contradicts");
  both.scaling = "linear";
  EXPECT_EQ(resolve_rope(rope_of(), both).factor, 4.0);
  std::filesystem::remove(file_);
  expect(both, "no such file");
}

// Every preset works with a model whose geometry it fits.
TEST(RopePresets, AllOfThemLoad) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LARIAT_SOURCE_DIR "/configs/rope")) {
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
}  // namespace lariat
