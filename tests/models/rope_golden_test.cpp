// RoPE frequencies of transformers (golden/rope/frequencies.json).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "models/io/json_fields.h"
#include "models/io/json_file.h"
#include "models/spec/rope.h"
#include "models/spec/rope_config.h"
#include "tests/source_dir.h"

namespace lariat {
namespace {

using nlohmann::json;

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

TEST(RopeGolden, FrequenciesEqualTransformers) {
  const json golden = read_json(test::source_dir() / "tests/golden/rope/frequencies.json");
  std::set<std::string> types;
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
      EXPECT_LE(relative(got.inv_freq[i], want[i]), 1e-14)
          << "pair " << i << ": both are double; more than rounding is another formula";
      if (c.contains("inv_freq_f32")) {
        EXPECT_LE(relative(got.inv_freq[i], c.at("inv_freq_f32").at(i).get<double>()), 1e-6) << "pair " << i;
      }
    }
    types.insert(c.at("type"));
  }
  EXPECT_GE(golden.at("cases").size(), 40U);
  EXPECT_EQ(types.size(), 11U) << "every type has a golden";
}

}  // namespace
}  // namespace lariat
