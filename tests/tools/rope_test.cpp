#include "models/load/config.h"
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

Outcome rope(const std::string& arguments) { return run_lariat("rope " + arguments); }

Json rope_json(const std::string& arguments) {
  const Outcome outcome = rope("--json " + arguments);
  EXPECT_EQ(outcome.err, "");
  return json_of(outcome);
}

std::string config(const std::string& name) { return (kSource / "configs" / name).string(); }

const std::string kHead = "--head-dim 128 --rope-theta 10000 --rope-original-ctx 4096 ";

TEST(RopeCommand, JsonHasTheFrequenciesOfTheLength) {
  const std::string dynamic = kHead + "--rope-scaling dynamic --rope-factor 2 --length 6000";
  Json got = rope_json(dynamic);
  RopeScaling scaling;
  scaling.head_dim = scaling.rotary_dim = 128;
  scaling.type = RopeType::kDynamic;
  scaling.factor = 2.0;
  scaling.original_ctx = scaling.max_position_embeddings = 4096;
  const auto after = rope_frequencies(scaling, 6000).inv_freq, before = rope_unscaled(scaling).inv_freq;
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_DOUBLE_EQ(got["ratio"][i], after[i] / before[i]);
    EXPECT_DOUBLE_EQ(got["turns"][i], 4096 / got["wavelength"][i].get<double>());
    EXPECT_NEAR(got["wavelength"][i].get<double>() * before[i], 6.283185307179586, 1e-12);
    EXPECT_EQ(got["interpolated"][i], i == 0 ? "none" : i == 63 ? "fully" : "partly");
  }
  for (const char* key : {"ratio", "wavelength", "turns", "interpolated"}) {
    EXPECT_EQ(got[key].size(), before.size());
    got.erase(key);
  }
  EXPECT_EQ(got, Json({{"type", "dynamic"},
                       {"rotary_dim", 128},
                       {"theta", 10000.0},
                       {"factor", 2.0},
                       {"original_ctx", 4096},
                       {"length", 6000},
                       {"scale", rope_scale(scaling, 6000)},
                       {"attention_factor", 1.0},
                       {"query_scale", 1.0},
                       {"position_method", ""},
                       {"inv_freq", after},
                       {"inv_freq_unscaled", before}}));
  const Json step = rope_json(dynamic + " --rope-steps 4");
  EXPECT_EQ(step["length"], 6000);
  EXPECT_EQ(step["inv_freq"].get<std::vector<double>>(),
            rope_frequencies(scaling, rope_step_length(scaling, 6000, 4)).inv_freq);
}

TEST(RopeCommand, SaysWhichDistancesAMethodSees) {
  const Outcome outcome =
      run_lariat("rope " + kHead + "--length 20000 --position-method sinks/sinks=4/window=96");
  EXPECT_TRUE(names(outcome.out, "sinks/sinks=4/window=96: | 100 keys | 99\n")) << outcome.out;
  expect_error(run_lariat("rope " + kHead + "--position-method dcb"), 2, "dcb | dca");
}

TEST(RopeCommand, UsesTheModelsScaling) {
  const Json got = rope_json("--model " + config("llama-3.1-8b.json"));
  EXPECT_EQ(got["type"], "llama3");
  EXPECT_EQ(got["original_ctx"], 8192);
  EXPECT_EQ(got["length"], 131072);
  const RopeScaling own = load_config(std::filesystem::path(config("llama-3.1-8b.json"))).rope();
  EXPECT_EQ(got["inv_freq"].get<std::vector<double>>(), rope_frequencies(own, 1).inv_freq);
  const Json off = rope_json("--rope-scaling none --model " + config("llama-3.1-8b.json"));
  EXPECT_EQ(off["type"], "default");
  EXPECT_EQ(off["inv_freq"], off["inv_freq_unscaled"]);
  EXPECT_EQ(off["inv_freq"], got["inv_freq_unscaled"]);
  const Json preset = rope_json("--model " + config("qwen3-8b.json") + " --rope-config " +
                                config("rope/qwen-yarn-128k.json"));
  EXPECT_EQ(preset["type"], "yarn");
  EXPECT_NEAR(preset["attention_factor"].get<double>(), 1.1386294361, 1e-9);
}

TEST(RopeCommand, UsesTheModelsPositionMethod) {
  Json own = Json::parse(slurp(kSource / "tests/golden/checkpoints/qwen2/config.json"));
  own["dual_chunk_attention_config"] = {{"chunk_size", 32},
                                        {"local_size", 8},
                                        {"original_max_position_embeddings", 64},
                                        {"sparse_attention_enabled", false}};
  const TempFolder folder;
  link_files(kSource / "tests/golden/checkpoints/qwen2", folder.path / "model");
  folder.put("model/config.json", own.dump());
  const std::string model = "--model " + (folder.path / "model").string(),
                    method = "dca/chunk=24/window=9/temperature=length";
  const Json got = rope_json(model);
  EXPECT_EQ(got["position_method"], method);
  EXPECT_EQ(got["original_ctx"], 64);
  EXPECT_EQ(got["length"], 128);
  EXPECT_TRUE(names(rope(model).out, method));
  EXPECT_TRUE(names(run_lariat("inspect " + model).out, "64 | " + method));
}

TEST(RopeCommand, TheTableCountsItsPairs) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {"--rope-scaling yarn --rope-factor 4", "1.13863 | 21 | 25 | 18"},
      {"--rope-scaling linear --rope-factor 2", "0 | 64"},
      {"", "64 | 0"},
      {"--rope-scaling dynamic-yarn --length 5000 --rope-steps 4", "5792.6"}};
  for (const auto& [options, words] : rows) {
    const Outcome outcome = rope(kHead + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(names(outcome.out, words)) << options;
  }
}

TEST(RopeCommand, DrawsAPictureWithTheJson) {
  const TempFolder folder;
  const fs::path svg = folder.path / "rope.svg";
  const Outcome outcome = rope(kHead + "--rope-scaling ntk --rope-factor 4 --json --svg " + svg.string());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(nlohmann::json::accept(outcome.out));
  EXPECT_EQ(slurp(svg).rfind("<svg ", 0), 0U);
  const std::vector<std::string> titles = {"Wavelengths", "Long-range decay"};
  for (const auto& [part, title] : {std::pair("frequencies", 0), {"decay", 1}}) {
    EXPECT_EQ(rope(kHead + "--svg " + svg.string() + " --only " + part).code, 0);
    const std::string drawn = slurp(svg);
    for (size_t i = 0; i < titles.size(); ++i)
      EXPECT_EQ(drawn.find(titles[i]) != std::string::npos, static_cast<int>(i) == title)
          << part << titles[i];
  }
}

}  // namespace
}  // namespace lariat::test
