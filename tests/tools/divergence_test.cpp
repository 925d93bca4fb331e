#include <fstream>

#include "tests/tools/program.h"

namespace lariat::test {
namespace {

Outcome perplexity_of_demo(const std::string& options) {
  return run_lariat(fmt::format(
      "perplexity --model {0} --file {0}/heldout.txt --device cpu --threads 1 --max-tokens 600 {1}",
      kDemo.string(), options));
}

Json json_of_demo(const std::string& options) { return json_of(perplexity_of_demo(options + " --json")); }

TEST(Against, BothPerplexitiesEqualSeparateRuns) {
  const std::string windows = "--method chunks --ctx 200 ";
  const auto both =
      json_of_demo(windows + "--quantize q4 --kv-dtype f32 --against same --against-quantize none");
  const auto alone = [&](const std::string& options) {
    return json_of_demo(windows + "--kv-dtype f32 " + options)["results"][0];
  };
  const auto q4 = alone("--quantize q4"), full = alone("");
  EXPECT_EQ(both["tokens"], q4["tokens"]);
  for (const auto& [key, expected] : {std::pair("ppl", q4["ppl"]), std::pair("ppl_stderr", q4["stderr"]),
                                      std::pair("against_ppl", full["ppl"])})
    EXPECT_NEAR(both[key].get<double>() / expected.get<double>(), 1, 1e-6) << key;
  EXPECT_GT(both["kl"], 1e-4);
  EXPECT_LT(both["kl"], both["kl_p99"]);
  EXPECT_LT(both["kl_p99"], both["kl_max"]);
  EXPECT_EQ(both["model"]["weights"], "q4");
  EXPECT_EQ(both["against"]["weights"], "bf16");
  EXPECT_EQ(both["against"]["keys"], "f32");  // as the first model's
}

// 8-bit values cost next to nothing.
TEST(Against, ReportsTheCostOf8BitValues) {
  const auto both = json_of_demo(
      "--ctx 300 --kv-dtype k=f16,v=q8 --rope-scaling dynamic --against same --against-kv-dtype f16");
  EXPECT_EQ(both["model"]["keys"], "f16");
  EXPECT_EQ(both["model"]["values"], "q8");
  EXPECT_EQ(both["against"]["values"], "f16");
  EXPECT_GT(both["kl"], 0);
  EXPECT_LT(both["kl"], 1e-3);
  EXPECT_NEAR(both["ppl_ratio"], 1, 2e-3);
}

TEST(Against, PrintsATable) {
  const Outcome outcome = perplexity_of_demo(
      "--ctx 300 --against same --against-rope-scaling linear "
      "--against-rope-factor 2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(names(outcome.out, "300 | 600 | perplexity | KL | ±"));
}

TEST(Against, TakesSeveralLengths) {
  const std::string q8 = "--against same --against-quantize q8 ";
  const auto both = json_of_demo("--ctx 200,300 " + q8), one = json_of_demo("--ctx 200 " + q8);
  ASSERT_EQ(both["results"].size(), 2U);
  EXPECT_EQ(both["results"][0], one["results"][0]);
  EXPECT_EQ(both["results"][1]["ctx"], 300);
  EXPECT_EQ(one["kl"], one["results"][0]["kl"]);  // at the top level for a single length
  EXPECT_EQ(one["identical_frequencies"], true);
}

// Stale and re-rotated keys are equal until the scale changes; each side equals a separate run.
TEST(Against, ComparesGrowingContexts) {
  const std::string growing =
      "--method growing --ctx 600 --step 100 --rope-scaling dynamic --rope-original-ctx 256 ";
  const auto both = json_of_demo(growing + "--buckets 3 --against same --against-rope-cache stale");
  const auto fresh = json_of_demo(growing)["results"][0],
             stale = json_of_demo(growing + "--rope-cache stale")["results"][0];
  EXPECT_NEAR(both["ppl"].get<double>() / fresh["ppl"].get<double>(), 1, 1e-4);
  EXPECT_NEAR(both["against_ppl"].get<double>() / stale["ppl"].get<double>(), 1, 1e-4);
  EXPECT_EQ(both["tokens"], 599);
  ASSERT_EQ(both["positions"].size(), 3U);
  EXPECT_EQ(both["positions"][0]["kl"], 0);
  EXPECT_GT(both["positions"][2]["kl"], 1e-3);
  EXPECT_GT(both["positions"][2]["ppl_ratio_stderr"], 0);
  EXPECT_EQ(both["against"]["rope_cache"], "stale");
  EXPECT_EQ(both["identical_frequencies"], false);
  const Outcome table = perplexity_of_demo(growing + "--buckets 3 --against same --against-rope-cache stale");
  EXPECT_TRUE(names(table.out, "600 | 599 | 400 - 599"));
}

// A resumed run measures only what its log lacks; results go to the CSV as printed.
TEST(Against, IsLoggedAndResumed) {
  const TempFolder folder;
  const auto log = folder.path / "log.jsonl", csv = folder.path / "out.csv";
  const std::string command =
      "--ctx 200,300 --method growing --buckets 2 --against same --against-quantize q8 ";
  const std::string kept = command + "--results " + log.string() + " --csv " + csv.string() + " ";
  const Json whole = json_of_demo(kept);
  EXPECT_EQ(whole, json_of_demo(command));
  const std::string lines = slurp(log), rows = slurp(csv);
  std::ofstream(log) << lines.substr(0, lines.size() - 9);
  EXPECT_EQ(json_of_demo(kept + "--resume"), whole);
  EXPECT_EQ(slurp(log), lines);
  EXPECT_EQ(slurp(csv), rows);
  const auto kl = fmt::format("\nkl,none,,false,300,,,,{},", whole["results"][1]["kl"].dump());
  EXPECT_TRUE(holds(rows, kl)) << rows;
  const Outcome other =
      perplexity_of_demo("--ctx 200,300 --method growing --against same --against-dtype f32 " +
                         ("--resume --results " + log.string()));
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_GT(slurp(log).size(), lines.size() + 1000) << "another reference is measured too";
}

TEST(Against, ReportsIdenticalSides) {
  const std::string yarn = "--against same --against-rope-scaling dynamic-yarn --ctx ";
  EXPECT_EQ(json_of_demo(yarn + "512")["identical_frequencies"], true);
  EXPECT_EQ(json_of_demo(yarn + "600")["identical_frequencies"], false);
  EXPECT_FALSE(names(perplexity_of_demo("--ctx 4 --max-tokens 4 " + yarn + "4").out, "nan"));
}

}  // namespace
}  // namespace lariat::test
