#include "engine/stopwatch.h"
#include "models/load/config.h"
#include "models/load/weights.h"
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

const std::string kBench = "bench --model " + kDemo.string() + " --device cpu --threads 1 --json ";

TEST(Bench, MeasuresEveryPromptAtEveryDepth) {
  std::vector<std::string> tests;
  const auto weights = static_cast<double>(planned_weights(load_config(kDemo), {}).bytes);
  constexpr double kCache = 4 * 2 * 64 * (2 + 2);  // layers, heads, head size, f16 and bf16
  const auto start = Stopwatch::now();
  const Json json = json_of(run_lariat(kBench + "--prompt 8,3 --gen 2 --depth 5,0 --reps 3"));
  const double all = seconds_since(start);
  double measured = 0;
  Json bandwidth = json["limits"]["read_gb_s"];
  for (const Json& result : json["results"]) {
    const double n = result["n"], median = result["tok_s_median"], gb_s = result["gb_s"];
    const bool prompt = result["test"] == "pp";
    tests.push_back(result["test"].get<std::string>() + result["n"].dump() + "@" + result["depth"].dump());
    EXPECT_EQ(result["reps"], 3);
    EXPECT_LE(result["tok_s_min"], median);
    EXPECT_LE(median, result["tok_s_max"]);
    measured += n / result["tok_s_min"].get<double>() + n / median + n / result["tok_s_max"].get<double>();
    const double read = prompt ? weights / n : weights + kCache * (result["depth"].get<double>() + n / 2);
    EXPECT_NEAR(gb_s * 1e9 / median, read, 1);
    EXPECT_LE(result["waited_for_cores"], 1) << "a share";
    ASSERT_EQ(result["limit_gb_s"].size(), 2U);
    EXPECT_EQ(result["limit_gb_s"][0], bandwidth);
    bandwidth = result["limit_gb_s"][1];
    EXPECT_GT(bandwidth, 0.01);
  }
  EXPECT_LT(measured, all);
  EXPECT_EQ(tests, (std::vector<std::string>{"pp8@0", "pp3@0", "tg2@0", "pp8@5", "pp3@5", "tg2@5"}));
}

// Model, threads and options determine the bits.
TEST(Bench, NamesTheComputedLogits) {
  std::vector<std::string> hashes[2];
  for (auto& of_run : hashes) {
    const Json json = json_of(run_lariat(kBench + "--prompt 8,3 --gen 2 --reps 2"));
    for (const Json& result : json["results"]) of_run.push_back(result["logits_hash"]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  std::ranges::sort(hashes[0]);
  EXPECT_EQ(std::ranges::adjacent_find(hashes[0]), hashes[0].end());
  for (const std::string& hash : hashes[0])
    EXPECT_TRUE(hash.size() == 16 && hash.find_first_not_of("0123456789abcdef") == std::string::npos) << hash;
  const std::string text =
      run_lariat("bench --model " + kDemo.string() + " --device cpu --threads 1 --prompt 8 --gen 0 --reps 1")
          .out;
  EXPECT_TRUE(names(text, hashes[1][0]));
}

TEST(Bench, ReportsTheRerotationsOfADynamicScale) {
  // The model was trained at 512 tokens: of four scale steps per octave, the second begins at 609.
  const Json json = json_of(
      run_lariat(kBench + "--rope-scaling dynamic --rope-factor 4 --prompt 0 --gen 8 --depth 605 --reps 1"));
  const Json& rerotations = json["results"][0]["rerotations"];
  EXPECT_EQ(rerotations["count"], 1);
  EXPECT_GE(rerotations["positions"], 605);
}

}  // namespace
}  // namespace lariat::test
