// --budget of perplexity and passkey, and a context that grows, as a user types them. No budget here is near
// to what the work takes, on any machine.
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace lariat::test {
namespace {

Outcome measured_on_demo(const std::string& command, const std::string& options) {
  const std::string demo = std::string(LARIAT_SOURCE_DIR) + "/configs/demo";
  const std::string file = command == "perplexity" ? " --file " + demo + "/heldout.txt" : "";
  return run_lariat(command + " --model " + demo + file + " --device cpu --threads 1 " + options);
}

TEST(BudgetOption, EndsAPerplexityWithWhatIsScored) {
  for (const char* method : {"sliding", "growing", "chunks"}) {
    const Outcome outcome =
        measured_on_demo("perplexity", std::string("--ctx 256 --budget 0.0000001 --json --method ") + method);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("were over with 0 tokens scored; the rest of"), std::string::npos)
        << outcome.err;
    const auto result = nlohmann::json::parse(outcome.out)["results"][0];
    EXPECT_FALSE(result["complete"].get<bool>());
    EXPECT_TRUE(result["ppl"].is_null());
  }
}

TEST(BudgetOption, LeavesOutPasskeyLengthsThatDoNotFit) {
  const std::string options = "--lengths 128,200 --depths 0.5 --trials 1 --json ";
  const Outcome none = measured_on_demo("passkey", options + "--budget 0.0000001");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_NE(none.err.find("128, 200 tokens"), std::string::npos) << none.err;
  auto json = nlohmann::json::parse(none.out);
  EXPECT_TRUE(json["results"].empty());
  EXPECT_FALSE(json["complete"].get<bool>());
  const Outcome all = measured_on_demo("passkey", options + "--budget 1000000");
  json = nlohmann::json::parse(all.out);
  EXPECT_EQ(json["results"].size(), 2U);
  EXPECT_EQ(json["results"][0]["length"], 128);
  EXPECT_TRUE(json["complete"].get<bool>());
}

TEST(BudgetOption, LongRunsSayWhatTheyWillTakeShortOnesDoNot) {
  const Outcome shorter = measured_on_demo("perplexity", "--ctx 64 --max-tokens 128");
  EXPECT_EQ(shorter.err, "");
  const Outcome longer = measured_on_demo("perplexity", "--ctx 64 --stride 8 --max-tokens 2048");
  EXPECT_NE(longer.err.find(" tokens through the model: about "), std::string::npos) << longer.err;
  EXPECT_EQ(measured_on_demo("perplexity", "--ctx 64 --stride 8 --max-tokens 2048 --quiet").err, "");
}

TEST(GrowingOption, PrintsPositionsAndRefusesWhatItCannotDo) {
  const Outcome table =
      measured_on_demo("perplexity", "--method growing --ctx 600 --buckets 2 --rope-scaling dynamic-yarn");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("0 - 299 "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("300 - 599 "), std::string::npos) << table.out;
  expect_error(measured_on_demo("perplexity", "--method growing --step 0"), 2, "--step");
  expect_error(measured_on_demo("perplexity", "--method growing --ctx 400000"), 1,
               "a context of 400000 tokens");
  expect_error(measured_on_demo("perplexity", "--method growing --load-cache x.ctx"), 2, "in one piece");
  expect_error(measured_on_demo("perplexity", "--budget 1 --save-cache x.ctx"), 2, "excludes");
  expect_error(measured_on_demo("perplexity", "--budget 0"), 2, "--budget");
  expect_error(measured_on_demo("perplexity", "--budget nan"), 2, "nan is not a finite number");
  expect_error(measured_on_demo("passkey", "--depths 0,nan"), 2, "nan is not a finite number");
}

}  // namespace
}  // namespace lariat::test
