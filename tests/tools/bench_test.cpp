// bench as a user types it: which tests it runs; how fast they are is nobody's to assert.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

const std::string kBench = "bench --model " + kDemo.string() + " --device cpu --threads 1 --json ";

TEST(Bench, MeasuresEveryPromptAtEveryDepth) {
  std::vector<std::string> tests;
  const Json json = json_of(run_lariat(kBench + "--prompt 8,3 --gen 2 --depth 5,0 --reps 3"));
  for (const Json& result : json["results"]) {
    tests.push_back(result["test"].get<std::string>() + result["n"].dump() + "@" + result["depth"].dump());
    EXPECT_EQ(result["reps"], 3);
    EXPECT_GT(result["tok_s_min"], 0);
    EXPECT_LE(result["tok_s_min"], result["tok_s_median"]);
    EXPECT_LE(result["tok_s_median"], result["tok_s_max"]);
    EXPECT_GT(result["gb_s"], 0);
    EXPECT_EQ(result["limit_gb_s"].size(), 2U);
    EXPECT_GT(result["limit_gb_s"][1], 0);
  }
  EXPECT_EQ(tests, (std::vector<std::string>{"pp8@0", "pp3@0", "tg2@0", "pp8@5", "pp3@5", "tg2@5"}));
}

// The same model, threads and options give the same bits in another run, and other tokens others.
TEST(Bench, NamesTheLogitsThatWereComputed) {
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
  // The demo checkpoint was trained at 512 tokens: with four scale steps per octave the second one begins at
  // 609.
  const Json json = json_of(
      run_lariat(kBench + "--rope-scaling dynamic --rope-factor 4 --prompt 0 --gen 8 --depth 605 --reps 1"));
  const Json& rerotations = json["results"][0]["rerotations"];
  EXPECT_EQ(rerotations["count"], 1);
  EXPECT_GE(rerotations["positions"], 605);
}

}  // namespace
}  // namespace lariat::test
