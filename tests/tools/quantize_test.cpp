#include "kernels/search_quant.h"
#include "models/load/config.h"
#include "models/load/weights.h"
#include "tests/engine/engine_test_util.h"
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

// Activations of 16 bits, the default of `logits`: close to the same weights in f32, and to decode.
TEST(ActivationsOption, LogitsMatchTheFloats) {
  const TempFolder folder;
  const auto logits = [&](const std::string& options) {
    const auto out = folder.path / "logits";
    const std::string tokens = "1,5,9,30,17,3,8,22,41,11,2,6,7,12,45,33,21,14,19,27,4,10,40,36,29,31";
    const Outcome outcome =
        run_lariat(fmt::format("logits --model {}/tests/golden/forms/gptq --device cpu --threads 2 --out {} "
                               "--tokens {} --kv-dtype f32 {}",
                               kSource.string(), out.string(), tokens, options));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return float_tensor(open_safetensors_file(out), "logits");
  };
  const std::vector<float> wide = logits(""), floats = logits("--dtype f32");
  EXPECT_EQ(logits("--activations 16"), wide);
  const double difference = max_abs_difference(wide, floats);
  EXPECT_LE(difference, 2e-3);
  EXPECT_GT(max_abs_difference(logits("--activations 8"), floats), 20 * difference);
  EXPECT_LE(max_abs_difference(logits("--decode-from 1"), wide), 2e-3);
}

TEST(ActivationsOption, IsPartOfResults) {
  const TempFolder folder;
  const std::string command = fmt::format(
      "perplexity --model {0} --file {0}/heldout.txt --device cpu --quantize q8 --ctx 64 "
      "--max-tokens 128 --json --results {1}/log ",
      kDemo.string(), folder.path.string());
  const auto result = [&](const std::string& options) {
    return json_of(run_lariat(command + options))["results"][0];
  };
  const Json wide = result("");
  EXPECT_EQ(wide["activations"], 16);
  const Json other = result("--resume --activations 8");  // measured again
  EXPECT_FALSE(other.contains("activations"));
  EXPECT_NE(other["nll"], wide["nll"]);
  EXPECT_EQ(result("--activations 8"), other);
}

TEST(QuantizeOption, BenchOfRandomWeightsNamesIt) {
  const Json json =
      json_of(run_lariat("bench --config " + kDemo.string() + "/config.json --random-weights --device cpu " +
                         "--quantize q4 --prompt 16 --gen 4 --reps 1 --json"));
  EXPECT_EQ(json["quantize"], "q4");
  EXPECT_EQ(json["dtype"], "q4");
  EXPECT_EQ(json["activations"], 8);
  const Json& prompt = json["results"][0];  // GB/s count all weights
  EXPECT_NEAR(prompt["gb_s"].get<double>() * 1e9 * 16 / prompt["tok_s_median"].get<double>(),
              static_cast<double>(
                  planned_weights(load_config(kDemo), searched_format(DType::kQ4, kSearchBlock)).bytes),
              1);
}

}  // namespace
}  // namespace lariat::test
