// Reference numbers for other programs, from float64 formulas.
#include <fmt/format.h>

#include <set>

#include "models/io/json_file.h"
#include "models/positions/parse_position_method.h"
#include "models/spec/rope_config.h"
#include "tests/engine/engine_test_util.h"
#include "tests/engine/position_cases.h"

namespace lariat::test {
namespace {

nlohmann::json vectors(const char* name) { return read_json(golden_dir() / "vectors" / name)["cases"]; }

TEST(Vectors, ScalingsMatchFrequenciesAndAngles) {
  std::set<std::string> types;
  for (const auto& test : vectors("scalings.json")) {
    SCOPED_TRACE(test["name"]);
    const RopeScaling rope = read_rope(JsonFields(test["config"], "vectors"), {.head_dim = 64});
    const RopeFrequencies got = rope_frequencies(rope, test["length"].get<double>());
    EXPECT_NEAR(got.attention_factor, test["attention_factor"].get<double>(), 1e-12);
    ASSERT_EQ(got.inv_freq.size(), test["inv_freq"].size());
    for (size_t pair = 0; pair < got.inv_freq.size(); ++pair) {
      const auto inv_freq = test["inv_freq"][pair].get<double>();
      EXPECT_NEAR(got.inv_freq[pair], inv_freq, 1e-14 * inv_freq);
      for (size_t i = 0; i < test["positions"].size(); ++i) {
        const double angle = test["positions"][i].get<double>() * got.inv_freq[pair];
        EXPECT_NEAR(std::cos(angle), test["cos"][i][pair].get<double>(), 1e-9) << i;
        EXPECT_NEAR(std::sin(angle), test["sin"][i][pair].get<double>(), 1e-9) << i;
      }
    }
    types.insert(test["name"]);
  }
  EXPECT_EQ(types.size(), static_cast<size_t>(RopeType::kDynamicYarnRadix) + 1);
}

TEST(Vectors, MethodsMatchDistancesAndFarFrequencies) {
  const RopeScaling rope = load_config(demo_dir()).rope();
  const std::vector<double> near = rope_frequencies(rope, 1).inv_freq;
  std::string names;
  for (const auto& test : vectors("methods.json")) {
    const auto name = test["name"].get<std::string>();
    SCOPED_TRACE(name);
    names += ", " + name.substr(0, name.find('/')) + ", ";
    const PositionMethod method = parse_position_method(name, rope.original_ctx, 0);
    EXPECT_EQ(method.name, name);
    const auto length = test["length"].get<double>();
    for (const auto& row : test["distances"]) {
      const auto distance = method.distance(row[0], row[1], length);
      EXPECT_EQ(distance.has_value(), row[2].is_number()) << row;
      EXPECT_NEAR(distance.value_or(0), row[2].is_number() ? row[2].get<double>() : 0, 1e-9) << row;
    }
    ASSERT_EQ(static_cast<bool>(method.far), test.contains("far_ratios"));
    if (!method.far) continue;
    const double scale = method.stretch(length);
    const auto [inv_freq, phases] = method.far(near, rope, scale);
    EXPECT_NEAR(method.temperature ? method.temperature(0, scale) : 1, test["temperature"].get<double>(),
                1e-12);
    for (size_t i = 0; i < near.size(); ++i) {
      EXPECT_NEAR(inv_freq[i] / near[i], test["far_ratios"][i].get<double>(), 1e-12) << i;
      EXPECT_NEAR(phases[i], test["window"].get<double>() * (near[i] - inv_freq[i]), 1e-12) << i;
    }
  }
  const std::string known = known_position_methods("|") + "|";
  for (size_t at = known.find('|') + 1, end = 0; at < known.size(); at = end + 1) {
    end = known.find('|', at);
    EXPECT_TRUE(names.find(", " + known.substr(at, end - at) + ",") != std::string::npos)
        << known.substr(at, end - at);
  }
}

// Token i is (7 i i + 3 i + 11) mod 2048. Compares every 64th logit after the last token.
TEST(Vectors, LogitsMatchTheDemo) {
  const nlohmann::json own = read_json(demo_dir() / "config.json");
  nlohmann::json configs;
  for (const auto& test : vectors("scalings.json")) configs[test["name"].get<std::string>()] = test["config"];
  CpuBackend backend(2);
  SessionOptions options = f32_session();
  options.rope_steps = 0;
  double largest = 0;
  for (const auto& test : vectors("logits.json")) {
    const auto name = test["name"].get<std::string>();
    SCOPED_TRACE(name);
    nlohmann::json config = own;
    if (configs.contains(name)) config["rope_parameters"] = configs[name]["rope_parameters"];
    const Model model =
        load_model(demo_dir(), parse_config(config.dump(), "config.json"), backend, DType::kF32);
    options.positions = parse_position_method(configs.contains(name) ? "none" : name, 512, 0);
    Session session(model, backend, options);
    Sequence sequence = session.new_sequence();
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < test["length"].get<int64_t>(); ++i)
      tokens.push_back(static_cast<int32_t>((7 * i * i + 3 * i + 11) % 2048));
    const std::vector<float> logits = prefill(session, sequence, tokens);
    for (size_t i = 0; i < 32; ++i) {
      const double off = std::abs(static_cast<double>(logits[64 * i]) - test["logits"][i].get<double>());
      EXPECT_LE(off, 2e-4) << i << " of " << test["length"];
      largest = std::max(largest, off);
    }
  }
  RecordProperty("largest", fmt::format("{:.1e}", largest));
}

}  // namespace
}  // namespace lariat::test
