#include "kernels/search_quant.h"
#include "models/config.h"
#include "models/weights.h"
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

// The first two argmaxes lead by 16 and 0.7; the third is a near tie.
TEST(QuantizeOption, GenerateStartsLikeTheFloatModel) {
  std::vector<Json> tokens;
  std::vector<double> logprobs;  // of the second token
  for (const std::string q : {"none", "q8", "q4"}) {
    const Json json =
        json_of(run_lariat("generate --model " + kDemo.string() + " --device cpu --quantize " + q +
                           " --prompt 'Once upon a time' --max-new-tokens 2 --logprobs 0 --json"));
    EXPECT_EQ(json["quantize"], q);
    tokens.push_back(json["tokens"]);
    logprobs.push_back(json["logprobs"].at(1)["logprob"]);
  }
  EXPECT_EQ(tokens, std::vector<Json>(3, {2004, 374}));
  EXPECT_NE(logprobs[1], logprobs[0]);
  EXPECT_NEAR(logprobs[1], logprobs[0], 0.02);
  EXPECT_NE(logprobs[2], logprobs[1]);
  EXPECT_NEAR(logprobs[2], logprobs[0], 0.1);
}

TEST(QuantizeOption, BenchOfRandomWeightsNamesIt) {
  const Json json =
      json_of(run_lariat("bench --config " + kDemo.string() + "/config.json --random-weights --device cpu " +
                         "--quantize q4 --prompt 16 --gen 4 --reps 1 --json"));
  EXPECT_EQ(json["quantize"], "q4");
  EXPECT_EQ(json["dtype"], "q4");
  const Json& prompt = json["results"][0];  // GB/s count all weights
  EXPECT_NEAR(
      prompt["gb_s"].get<double>() * 1e9 * 16 / prompt["tok_s_median"].get<double>(),
      static_cast<double>(planned_weights(load_config(kDemo), searched_form(DType::kQ4, kSearchBlock)).bytes),
      1);
}

}  // namespace
}  // namespace lariat::test
