// tests/golden/rope/frequencies.json: transformers' frequencies for many configs; see tests/golden/README.md.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "models/io/json_fields.h"
#include "models/io/json_file.h"
#include "models/rope.h"
#include "models/rope_config.h"

namespace lariat {
namespace {

using nlohmann::json;

const std::filesystem::path kGolden = std::filesystem::path(LARIAT_SOURCE_DIR) / "tests/golden/rope";

RopeScaling parse(const json& config, const std::string& name) {
  const JsonFields fields(config, name);
  RopeDefaults defaults;
  const auto heads = fields.integer("num_attention_heads", 1, 1 << 20).value_or(1);
  defaults.head_dim = fields.integer("head_dim", 1, 1 << 20)
                          .value_or(fields.integer("hidden_size", 1, 1 << 20).value_or(0) / heads);
  return read_rope(fields, defaults);
}

double relative(double got, double want) {
  return got == want ? 0.0 : std::abs(got - want) / std::max(std::abs(want), 1e-300);
}

TEST(RopeGolden, FrequenciesAreThoseOfTransformers) {
  const json golden = read_json(kGolden / "frequencies.json");
  std::map<std::string, int> types;
  double worst = 0, worst_f32 = 0;
  for (const json& c : golden.at("cases")) {
    const std::string name = c.at("name");
    SCOPED_TRACE(name);
    const RopeScaling rope = parse(c.at("config"), name);
    EXPECT_EQ(name_of(rope.type), c.at("type").get<std::string>());
    const auto got = rope_frequencies(rope, c.at("length").get<double>());
    const auto want = c.at("inv_freq").get<std::vector<double>>();
    ASSERT_EQ(got.inv_freq.size(), want.size());
    EXPECT_NEAR(got.attention_factor, c.at("attention_factor").get<double>(), 1e-12);
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = relative(got.inv_freq[i], want[i]);
      worst = std::max(worst, off);
      EXPECT_LE(off, 2e-7) << "pair " << i;
      if (!c.contains("inv_freq_f32")) continue;
      const double off_f32 = relative(got.inv_freq[i], c.at("inv_freq_f32").at(i).get<double>());
      worst_f32 = std::max(worst_f32, off_f32);
      EXPECT_LE(off_f32, 1e-6) << "pair " << i;
    }
    ++types[c.at("type")];
  }
  int cases = 0;
  for (const auto& [type, count] : types) cases += count;
  RecordProperty("cases", cases);
  RecordProperty("worst_relative_error", std::to_string(worst));
  EXPECT_GE(cases, 40);
  EXPECT_EQ(types.size(), 9U) << "every type has a golden";
  EXPECT_LE(worst, 1e-14) << "both are double; more than rounding is another formula";
  EXPECT_LE(worst_f32, 1e-6);
}

TEST(RopeGolden, AnglesAreProductsInDouble) {
  const json golden = read_json(kGolden / "angles.json");
  int cases = 0;
  for (const json& c : golden.at("cases")) {
    RopeScaling rope;
    rope.head_dim = rope.rotary_dim = c.at("dim");
    rope.theta = c.at("theta");
    rope.original_ctx = rope.max_position_embeddings = 4096;
    const double inv_freq = rope_frequencies(rope, 1).inv_freq.at(c.at("pair").get<size_t>());
    EXPECT_LE(relative(inv_freq, c.at("inv_freq")), 1e-15);
    const double position = c.at("position"), angle = position * inv_freq;
    // One ulp of the frequency is at most this far apart at the angle.
    const double slack = 4e-16 * std::max(1.0, std::abs(angle));
    EXPECT_NEAR(angle, c.at("angle").get<double>(), slack);
    EXPECT_NEAR(std::cos(angle), c.at("cos").get<double>(), slack);
    EXPECT_NEAR(std::sin(angle), c.at("sin").get<double>(), slack);
    ++cases;
  }
  EXPECT_GE(cases, 100);
}

}  // namespace
}  // namespace lariat
