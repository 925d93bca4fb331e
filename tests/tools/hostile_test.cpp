// Files made to hurt, through the program: each is one clear line, and none is read, allocated or waited for.
#include "tests/tools/spoiled.h"

namespace lariat::test {
namespace {

TEST(Hostile, Terabytes) {
  const uint64_t more = uint64_t{1} << 40;
  {
    const Spoiled model;
    if (!model.stretch("model.safetensors", more))
      LARIAT_SKIP("the file system has no sparse files of 1 TiB");
    expect_error(model.run(kLogits), 1, "model.safetensors: its tensors end at byte");
  }
  {
    const Spoiled model;
    auto [header, data] = model.weights();
    header["unused"] = {
        {"dtype", "U8"}, {"shape", {more}}, {"data_offsets", {data.size(), data.size() + more}}};
    model.put_weights(header.dump(), data);
    ASSERT_TRUE(model.stretch("model.safetensors", 8 + header.dump().size() + data.size() + more));
    expect_error(model.run(kLogits), 1, "tensor 'unused' is not read");  // is mapped, refused, and never read
  }
  const Spoiled model;
  model.change("config.json", "/vocab_size", 1 << 20);
  model.change("config.json", "/hidden_size", 1 << 19);
  const Json header = {{"model.embed_tokens.weight",
                        {{"dtype", "F32"}, {"shape", {1 << 20, 1 << 19}}, {"data_offsets", {0, 2 * more}}}}};
  model.put_weights(header.dump(), "");
  if (!model.stretch("model.safetensors", 8 + header.dump().size() + 2 * more))
    LARIAT_SKIP("the file system has no sparse files of 2 TiB");
  expect_error(model.run(kLogits), 1, "config.json: the weights take ");
}

// Those of a header and of a tokenizer: tests/models/safetensors_test.cpp, tokenizer_errors_test.cpp.
TEST(Hostile, AMillionBrackets) {
  const std::string brackets(1'000'000, '['), braces = [] {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "{\"a\":";
    return text;
  }();
  const std::string says = ": JSON nested deeper than 64 levels";
  for (const std::string& deep : {brackets, braces}) {
    expect_refusals(
        {{"model.safetensors.index.json" + says, kLogits, sharded(deep)},
         {"config.json" + says, kLogits, replaced("config.json", deep)},
         {"log.jsonl: line 1" + says, kMerge, replaced("log.jsonl", deep.substr(0, 60'000) + "\n")}});
  }
}

// Every number's bounds: tests/models/config_test.cpp. Here are those that hold between two of them.
TEST(Hostile, NumbersOfAConfig) {
  std::vector<Damage> table = {
      // as many layers as are allowed, of which the file has two
      {"tensor 'model.layers.2.", kLogits, changed("config.json", "/num_hidden_layers", 10'000)}};
  const std::vector<std::pair<std::string, Json>> rows = {
      {"num_attention_heads", 1 << 20},
      {"num_key_value_heads", 1 << 20},
      {"num_key_value_heads", 3},
      {"head_dim", 3},
      {"rms_norm_eps", 1e300},
      {"eos_token_id", int64_t{1} << 31},
      {"eos_token_id", Json::array({1, int64_t{1} << 40})}};
  for (const auto& [key, value] : rows) {
    table.push_back({"config.json: \"" + key + "\" is ", kLogits, changed("config.json", "/" + key, value)});
  }
  expect_refusals(table);
}

TEST(Hostile, AKeyTwice) {
  expect_refusals({{"(header): the key \"model.norm.weight\" stands twice in one object", kLogits,
                    [](const Spoiled& model) {
                      const auto [header, data] = model.weights();
                      const std::string norm = header["model.norm.weight"].dump();
                      model.put_weights("{\"model.norm.weight\":" + norm + "," + header.dump().substr(1),
                                        data);
                    }},
                   {"index.json: the key \"a\" stands twice in one object", kLogits,
                    sharded(R"({"weight_map": {"a": "x", "a": "y"}})")},
                   {"tokenizer.json: the key \"model\" stands twice in one object", kTokenize,
                    [](const Spoiled& model) {
                      const std::string text = slurp(model.dir / "tokenizer.json");
                      model.put("tokenizer.json", "{\"model\": 1," + text.substr(text.find('{') + 1));
                    }},
                   {"line 1: the key \"lariat_sweep\" stands twice", kMerge,
                    replaced("log.jsonl", "{\"lariat_sweep\":1,\"lariat_sweep\":1}\n")}});
}

TEST(Hostile, NamesInErrors) {
  const Spoiled model;
  model.put_weights(
      Json({{"a\x1b[2J\nb\x07", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 8}}}}}).dump(),
      "12345678");
  expect_error(model.run(kLogits), 1, "tensor 'a [2J b ': 8 bytes do not fit");
  model.change("config.json", "/architectures/0", std::string(100'000, 'x'));
  EXPECT_LT(model.run(kLogits).err.size(), 5000U);
  model.copy("tokenizers/llama-mini", {"tokenizer.json"});
  model.change("tokenizer.json", "/post_processor/single/0/SpecialToken/id", std::string(1'000'000, 'x'));
  const Outcome outcome = model.run(kTokenize);
  expect_error(outcome, 1, "': expected an object");
  EXPECT_LT(outcome.err.size(), 5000U);
}

TEST(Hostile, Patterns) {
  const Spoiled model;
  model.split_by("(a+)+b|.");
  EXPECT_EQ(model.tokenize("aab aaab").code, 0);
  const std::string says =
      "tokenizer.json: key 'pre_tokenizer.pretokenizers[0].pattern.Regex': the pattern backtracks";
  expect_error(model.tokenize(std::string(60, 'a')), 1, says);
  // Words each of which is just bearable add up.
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::string(19, 'a') + " ";
  expect_error(model.tokenize(text), 1, says);
  // One that runs over all that follows for every character that it then takes.
  model.split_by("[^x]*x|.");
  text.clear();
  for (int i = 0; i < 200; ++i) text += std::string(5000, 'a') + "x";  // long words are fine
  EXPECT_EQ(model.tokenize(text).code, 0);
  expect_error(model.tokenize(std::string(1 << 20, 'a')), 1, "the pattern looks too far ahead on this text");
}

TEST(Hostile, IdsOfATokenizer) {
  // Within the bounds, and far beyond what the file pays for.
  std::vector<Damage> table = {{"tokenizer.json: token 'zzz' has the id 16777215 and there are", kTokenize,
                                changed("tokenizer.json", "/model/vocab/zzz", (1 << 24) - 1)}};
  for (const Json& bad :
       {Json(int64_t{1} << 31), Json((int64_t{1} << 31) - 1), Json(-1), Json(1.5), Json(uint64_t{1} << 63)}) {
    table.push_back({"tokenizer.json: key 'model.vocab': the id of 'zzz' is not an integer below", kTokenize,
                     changed("tokenizer.json", "/model/vocab/zzz", bad)});
    table.push_back({"tokenizer.json: key 'added_tokens[0].id'", kTokenize,
                     changed("tokenizer.json", "/added_tokens/0/id", bad)});
  }
  expect_refusals(table);
}

TEST(Hostile, FilesOfAGigabyte) {
  for (const auto& [name, command] :
       {std::pair("tokenizer.json", kTokenize), std::pair("config.json", kLogits),
        std::pair("tokenizer.model", kTokenize)}) {
    const Spoiled model;
    if (name == std::string("tokenizer.model")) model.remove("tokenizer.json");
    if (!fs::exists(model.dir / name)) model.put(name, "");
    if (!model.stretch(name, uint64_t{1} << 30)) LARIAT_SKIP("the file system has no sparse files of 1 GiB");
    expect_error(model.run(command), 1, std::string(name) + ": 1073741824 bytes, more than the ");
  }
}

TEST(Hostile, LinesOfALog) {
  const std::string first = "{\"lariat_sweep\":1}\n";
  std::string keys = "{";
  for (int i = 0; i < 5000; ++i) keys += "\"" + std::to_string(i) + "\":1,";
  const auto log = [](const std::string& text) { return replaced("log.jsonl", text); };
  expect_refusals(
      {{"log.jsonl: line 2 has 20000000 bytes", kMerge, log(first + std::string(20'000'000, 'x') + "\n")},
       {"log.jsonl: 100000020 bytes, more than the ", kMerge,
        log(first + std::string(100'000'000, 'x') + "\n")},
       {"log.jsonl: line 2: 5001 keys, more than the ", kMerge, log(first + keys + "\"x\":1}\n")},
       {"log.jsonl: line 1: \"model\" is missing", kMerge, log(first)}});
}

}  // namespace
}  // namespace lariat::test
