// Warnings are one stderr line, once; none with --quiet. accepted.tsv has other warnings.
#include <limits>

#include "tests/tools/spoiled.h"

namespace lariat::test {
namespace {

TEST(Warnings, NonFiniteWeights) {
  const Spoiled model;
  auto [header, data] = model.weights();
  const size_t at = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0];
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1.0F,
                       -std::numeric_limits<float>::infinity()};
  std::memcpy(data.data() + at, bad, sizeof bad);
  model.put_weights(header.dump(), data);
  // The weights are used unchanged.
  const Outcome outcome = model.run(kLogits);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(
      names(outcome.err, "lariat: warning: | model.safetensors | model.layers.1.mlp.up_proj.weight | 3"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(model.run(kLogits + " --quiet").err, "");
}

// The text reaches z, with a NaN embedding, only after the checked logits.
class LateNan : public testing::Test {
 protected:
  LateNan() {
    Json vocab = {{"Ġ", 29}};
    for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = 3 + c - 'a';
    model_.change("tokenizer.json", "/added_tokens", Json::array());
    model_.change("tokenizer.json", "/model/vocab", vocab);
    model_.change("tokenizer.json", "/model/merges", Json::array());
    auto [header, data] = model_.weights();
    const size_t embedding = header["model.embed_tokens.weight"]["data_offsets"][0];
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(data.data() + embedding + size_t{28} * 32 * sizeof nan, &nan, sizeof nan);
    model_.put_weights(header.dump(), data);
    std::string text;
    for (int i = 0; i < 100; ++i) text += i == 60 ? "a zebra " : "the cat sat ";
    model_.put("text", text);
  }
  void expect_named(const std::string& command, int code = 0) const {
    const Outcome outcome = model_.run(command + " --device cpu -m {0}");
    const std::string& err = outcome.err;
    const size_t at = err.find("model.embed_tokens.weight"), begin = err.rfind('\n', at) + 1;
    EXPECT_EQ(outcome.code, code) << err;
    ASSERT_NE(at, std::string::npos) << command << err;
    EXPECT_EQ(err.find("model.embed_tokens.weight", at + 1), std::string::npos) << err;
    EXPECT_TRUE(names(err.substr(begin, err.find('\n', at) - begin),
                      "lariat: warning: " + model_.dir.string() + "/model.safetensors | 1 | 1952"))
        << command;
    if (code == 0) {
      EXPECT_EQ(outcome.err.find("warning"), outcome.err.rfind("warning")) << outcome.err;
    }
  }
  const Spoiled model_;
};

TEST_F(LateNan, IsReportedByEveryCommand) {
  const std::string perplexity = "perplexity -f {0}/text ";
  for (const char* how : {"--ctx 64 --stride 64", "--ctx 64 --method chunks", "--ctx 1000 --method growing",
                          "--save-cache {0}/context", "--ctx 64 --against same --against-kv-dtype f32"})
    expect_named(perplexity + how);
  expect_named("sweep -f {0}/text --lengths 64 --scalings none,linear --no-passkey --report {0}/report.html");
  expect_named("passkey --lengths 600 --depths 1 --trials 1 --haystack {0}/text");
  expect_named("logits --tokens 3,4,28,5 --decode-from 1 --out {0}/out");
  expect_named("generate --load-cache {0}/context -n 3", 1);
}

TEST_F(LateNan, IsNullInJson) {
  const Json json = json_of(model_.run("perplexity -f {0}/text --ctx 64 --json --quiet -m {0}"));
  for (const char* key : {"nll", "ppl", "stderr"}) EXPECT_TRUE(json["results"][0][key].is_null()) << key;
}

TEST_F(LateNan, IsNamedInOneOfTwoModels) {
  const Spoiled right;
  right.put("tokenizer.json", slurp(model_.dir / "tokenizer.json"));
  const std::string against = "perplexity -f {0}/text --ctx 64 --against " + right.dir.string();
  expect_named(against);
  model_.put("text", std::string(200, 'a'));
  EXPECT_EQ(model_.run(against + " -m {0}").err, "");
}

TEST_F(LateNan, IsNamedInASharedModel) {
  const fs::path model = shared_dir() / "cases" / "nan-later";
  LARIAT_NEEDS(model);
  const std::string expected = fmt::format(
      "lariat: warning: {}/model.safetensors | model.embed_tokens.weight | 16 | 4176", model.string());
  const std::string of_text = fmt::format(" -m {0} -f {0}/text.txt ", model.string());
  const std::string err = run_lariat("perplexity -c 64 --stride 64" + of_text).err;
  EXPECT_TRUE(names(err, expected));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  EXPECT_TRUE(
      names(run_lariat("sweep --lengths 64,128 --scalings none,yarn --no-passkey --no-speed --report " +
                       (model_.dir / "x.html").string() + of_text)
                .err,
            expected));
}

}  // namespace
}  // namespace lariat::test
