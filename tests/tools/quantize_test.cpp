// --quantize as a user types it.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

TEST(QuantizeOption, GenerateNamesItAndBeginsAsTheFloatModelDoes) {
  Json first;
  for (const std::string q : {"none", "q8", "q4"}) {
    const Json json = json_of(run_lariat("generate --model " + kDemo.string() + " --device cpu --quantize " +
                                         q + " --prompt 'Once upon a time' --max-new-tokens 24 --json"));
    EXPECT_EQ(json["quantize"], q);
    ASSERT_EQ(json["tokens"].size(), 24U);
    if (q == "none") first = json["tokens"];
    EXPECT_EQ(json["tokens"][0], first[0]) << json["text"];  // later words may be as good as each other
  }
}

TEST(QuantizeOption, BenchOfRandomWeightsNamesIt) {
  const Json json =
      json_of(run_lariat("bench --config " + kDemo.string() + "/config.json --random-weights --device cpu " +
                         "--quantize q4 --prompt 16 --gen 4 --reps 1 --json"));
  EXPECT_EQ(json["quantize"], "q4");
  EXPECT_EQ(json["dtype"], "q4");
  EXPECT_GT(json["limits"]["gemm_tflop_s"], 0);
}

}  // namespace
}  // namespace lariat::test
