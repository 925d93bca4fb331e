// perplexity of a context that grows, as a user types it.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

Outcome measured_on_demo(const std::string& command, const std::string& options) {
  const std::string demo = std::string(LARIAT_SOURCE_DIR) + "/configs/demo";
  const std::string file = command == "perplexity" ? " --file " + demo + "/heldout.txt" : "";
  return run_lariat(command + " --model " + demo + file + " --device cpu --threads 1 " + options);
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
  expect_error(measured_on_demo("passkey", "--depths 0,nan"), 2, "nan is not a finite number");
}

}  // namespace
}  // namespace lariat::test
