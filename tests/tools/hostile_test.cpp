// Hostile files give one clear line; the program does not read, allocate or wait for them. See also
// refusals.tsv.
#include "tests/tools/spoiled.h"

namespace lariat::test {
namespace {

TEST(Hostile, Terabytes) {
  const uint64_t more = uint64_t{1} << 40;
  {
    const Spoiled model;
    if (!model.stretch("model.safetensors", more))
      LARIAT_SKIP("the file system has no sparse files of 1 TiB");
    expect_error(model.run(kLogits), 1, "model.safetensors");
  }
  {
    const Spoiled model;
    auto [header, data] = model.weights();
    header["unused"] = {
        {"dtype", "U8"}, {"shape", {more}}, {"data_offsets", {data.size(), data.size() + more}}};
    model.put_weights(header.dump(), data);
    ASSERT_TRUE(model.stretch("model.safetensors", 8 + header.dump().size() + data.size() + more));
    expect_error(model.run(kLogits), 1, "model.safetensors | unused");  // never read
  }
  const Spoiled model;
  model.change("config.json", "/vocab_size", 1 << 20);
  model.change("config.json", "/hidden_size", 1 << 19);
  const Json header = {{"model.embed_tokens.weight",
                        {{"dtype", "F32"}, {"shape", {1 << 20, 1 << 19}}, {"data_offsets", {0, 2 * more}}}}};
  model.put_weights(header.dump(), "");
  if (!model.stretch("model.safetensors", 8 + header.dump().size() + 2 * more))
    LARIAT_SKIP("the file system has no sparse files of 2 TiB");
  expect_error(model.run(kLogits), 1, "config.json");
}

TEST(Hostile, NamesInErrors) {
  const Spoiled model;
  model.put_weights(
      Json({{"a\x1b[2J\nb\x07", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 8}}}}}).dump(),
      "12345678");
  expect_error(model.run(kLogits), 1, "model.safetensors | a [2J b | 8");
  model.change("config.json", "/architectures/0", std::string(100'000, 'x'));
  EXPECT_LT(model.run(kLogits).err.size(), 5000U);
  model.copy("tokenizers/llama-mini", {"tokenizer.json"});
  model.change("tokenizer.json", "/post_processor/single/0/SpecialToken/id", std::string(1'000'000, 'x'));
  const Outcome outcome = model.run(kTokenize);
  expect_error(outcome, 1, "tokenizer.json | post_processor");
  EXPECT_LT(outcome.err.size(), 5000U);
}

TEST(Hostile, Patterns) {
  const Spoiled model;
  model.split_by("(a+)+b|.");
  EXPECT_EQ(model.tokenize("aab aaab").code, 0);
  const std::string words = "tokenizer.json | pre_tokenizer.pretokenizers[0].pattern.Regex";
  expect_error(model.tokenize(std::string(60, 'a')), 1, words);
  // Costs of words below the limit add up.
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::string(19, 'a') + " ";
  expect_error(model.tokenize(text), 1, words);
  // Each match scans all following text.
  model.split_by("[^x]*x|.");
  text.clear();
  for (int i = 0; i < 200; ++i) text += std::string(5000, 'a') + "x";  // long words are fine
  EXPECT_EQ(model.tokenize(text).code, 0);
  expect_error(model.tokenize(std::string(1 << 20, 'a')), 1, words);
}

}  // namespace
}  // namespace lariat::test
