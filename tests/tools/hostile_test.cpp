// Files made to hurt, through the program: each is one clear line, and none is read, allocated or waited for.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kGoldenDir = fs::path(LARIAT_SOURCE_DIR) / "tests" / "golden";

void put(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// A good checkpoint and tokenizer that a test spoils.
class Hostile : public testing::Test {
 protected:
  Hostile() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) /
           ("lariat-hostile-" + std::string(info->name()) + std::to_string(::getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(kGoldenDir / "checkpoints" / "llama_gqa" / name, dir_ / name);
    fs::copy_file(kGoldenDir / "tokenizers" / "byte-mini" / "tokenizer.json", dir_ / "tokenizer.json");
  }
  ~Hostile() override {
    std::error_code ec;
    fs::remove_all(dir_, ec);
  }

  Outcome logits(const std::string& more = "") const {
    return run_lariat("logits --model " + dir_.string() + " --tokens 1,2,3 --out " + (dir_ / "out").string() +
                      more);
  }
  Outcome tokenize(const std::string& text) const {
    put(dir_ / "text", text);
    return run_lariat("tokenize --model " + dir_.string() + " --file " + (dir_ / "text").string());
  }
  Outcome merge(const std::string& log) const {
    put(dir_ / "log.jsonl", log);
    return run_lariat("sweep --merge " + (dir_ / "log.jsonl").string() + " --report " +
                      (dir_ / "r.html").string());
  }
  Json read(const char* name) const { return Json::parse(slurp(dir_ / name)); }
  void change(const char* name, const char* pointer, const Json& value) const {
    Json all = read(name);
    all[Json::json_pointer(pointer)] = value;
    put(dir_ / name, all.dump());
  }

  // The header and the data of the weights.
  std::pair<Json, std::string> weights() const {
    const std::string bytes = slurp(dir_ / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
  }
  void put_weights(const std::string& header, const std::string& data) const {
    const uint64_t length = header.size();
    put(dir_ / "model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  }
  // The tokenizer cuts texts into the matches of this pattern.
  void split_by(const char* pattern) const {
    const Json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    change("tokenizer.json", "/pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {split, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}});
  }
  // Makes a file long without giving it bytes; false where the file system cannot.
  bool stretch(const char* name, int64_t bytes) const {
    return ::truncate((dir_ / name).c_str(), bytes) == 0;
  }

  fs::path dir_;
};

TEST_F(Hostile, ATerabyteBehindTheTensors) {
  if (!stretch("model.safetensors", int64_t{1} << 40))
    GTEST_SKIP() << "the file system has no sparse files of 1 TiB";
  expect_error(logits(), 1, "model.safetensors: its tensors end at byte");
}

TEST_F(Hostile, ATerabyteThatTheModelDoesNotAskFor) {
  auto [header, data] = weights();
  const uint64_t more = uint64_t{1} << 40;
  header["unused"] = {
      {"dtype", "U8"}, {"shape", {more}}, {"data_offsets", {data.size(), data.size() + more}}};
  const std::string text = header.dump();
  put_weights(text, data);
  if (!stretch("model.safetensors", static_cast<int64_t>(8 + text.size() + data.size() + more)))
    GTEST_SKIP() << "the file system has no sparse files of 1 TiB";
  expect_error(logits(), 1, "tensor 'unused' is not read");  // is mapped, refused, and never read
}

TEST_F(Hostile, ATerabyteOfWeights) {
  change("config.json", "/vocab_size", 1 << 20);
  change("config.json", "/hidden_size", 1 << 19);
  const uint64_t bytes = uint64_t{4} << 39;
  const Json header = {{"model.embed_tokens.weight",
                        {{"dtype", "F32"}, {"shape", {1 << 20, 1 << 19}}, {"data_offsets", {0, bytes}}}}};
  put_weights(header.dump(), "");
  if (!stretch("model.safetensors", static_cast<int64_t>(8 + header.dump().size() + bytes)))
    GTEST_SKIP() << "the file system has no sparse files of 2 TiB";
  expect_error(logits(), 1, "config.json: the weights take ");
}

TEST_F(Hostile, AMillionBrackets) {
  const std::string brackets(1'000'000, '['), braces = [] {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "{\"a\":";
    return text;
  }();
  for (const std::string& deep : {brackets, braces}) {
    put_weights(deep, "");
    expect_error(logits(), 1, "model.safetensors (header): JSON nested deeper than 64 levels");
    fs::remove(dir_ / "model.safetensors");
    put(dir_ / "model.safetensors.index.json", deep);
    expect_error(logits(), 1, "model.safetensors.index.json: JSON nested deeper than 64 levels");
    put(dir_ / "tokenizer.json", deep);
    expect_error(tokenize("x"), 1, "tokenizer.json: JSON nested deeper than 64 levels");
    put(dir_ / "config.json", deep);
    expect_error(logits(), 1, "config.json: JSON nested deeper than 64 levels");
    expect_error(merge(deep.substr(0, 60'000) + "\n"), 1,
                 "log.jsonl: line 1: JSON nested deeper than 64 levels");
    put(dir_ / "config.json", slurp(kGoldenDir / "checkpoints" / "llama_gqa" / "config.json"));
  }
}

TEST_F(Hostile, NumbersOfAConfig) {
  const Json good = read("config.json");
  const std::vector<std::pair<const char*, std::vector<Json>>> cases = {
      {"num_hidden_layers", {0, -1, 1'000'000'000, 1.5, "2", uint64_t{1} << 63}},
      {"hidden_size", {0, -32, int64_t{1} << 40, 1e300}},
      {"intermediate_size", {0, -1, int64_t{1} << 50}},
      {"vocab_size", {0, -1, int64_t{1} << 40}},
      {"num_attention_heads", {0, -4, 1 << 20}},
      {"num_key_value_heads", {0, -2, 1 << 20, 3}},
      {"head_dim", {0, -16, 3, 1 << 20}},
      {"max_position_embeddings", {0, -1, int64_t{1} << 62, 1e300}},
      {"rms_norm_eps", {0, -1, 1e300, "nan"}},
      {"eos_token_id", {int64_t{1} << 31, Json::array({1, int64_t{1} << 40})}}};
  for (const auto& [key, values] : cases) {
    for (const Json& value : values) {
      Json config = good;
      config[key] = value;
      put(dir_ / "config.json", config.dump());
      expect_error(logits(), 1, "config.json: \"" + std::string(key) + "\" is ");
    }
  }
  // As many layers as are allowed, of which the file has two.
  put(dir_ / "config.json", good.dump());
  change("config.json", "/num_hidden_layers", 10'000);
  expect_error(logits(), 1, "tensor 'model.layers.2.");
}

TEST_F(Hostile, AKeyTwice) {
  const auto [header, data] = weights();
  std::string text = header.dump();
  put_weights("{\"model.norm.weight\":" + header["model.norm.weight"].dump() + "," + text.substr(1), data);
  expect_error(logits(), 1, "(header): the key \"model.norm.weight\" stands twice in one object");
  fs::remove(dir_ / "model.safetensors");
  put(dir_ / "model.safetensors.index.json", R"({"weight_map": {"a": "x", "a": "y"}})");
  expect_error(logits(), 1, "index.json: the key \"a\" stands twice in one object");
  text = slurp(dir_ / "tokenizer.json");
  put(dir_ / "tokenizer.json", "{\"model\": 1," + text.substr(text.find('{') + 1));
  expect_error(tokenize("x"), 1, "tokenizer.json: the key \"model\" stands twice in one object");
  expect_error(merge("{\"lariat_sweep\":1,\"lariat_sweep\":1}\n"), 1,
               "line 1: the key \"lariat_sweep\" stands twice");
}

TEST_F(Hostile, NamesInErrors) {
  const auto error_of_name = [&](const std::string& name) {
    put_weights(Json({{name, {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 8}}}}}).dump(),
                "12345678");
    return logits();
  };
  expect_error(error_of_name("a\x1b[2J\nb\x07"), 1, "tensor 'a [2J b ': 8 bytes do not fit");
  change("config.json", "/architectures/0", std::string(100'000, 'x'));
  EXPECT_LT(logits().err.size(), 5000U);
  fs::copy_file(kGoldenDir / "tokenizers" / "llama-mini" / "tokenizer.json", dir_ / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  change("tokenizer.json", "/post_processor/single/0/SpecialToken/id", std::string(1'000'000, 'x'));
  const Outcome outcome = tokenize("x");
  expect_error(outcome, 1, "': expected an object");
  EXPECT_LT(outcome.err.size(), 5000U);
}

TEST_F(Hostile, NotFiniteWeights) {
  const auto [header, data] = weights();
  std::string damaged = data;
  const size_t at = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0];
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1.0F,
                       -std::numeric_limits<float>::infinity()};
  std::memcpy(damaged.data() + at, bad, sizeof bad);
  put_weights(header.dump(), damaged);
  const Outcome outcome = logits();
  EXPECT_EQ(outcome.code, 0) << outcome.err;  // what was asked for is still what the file says
  EXPECT_EQ(outcome.err.rfind("lariat: warning: ", 0), 0U) << outcome.err;
  EXPECT_NE(outcome.err.find(
                "model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' holds 3 NaN or infinite"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(logits(" --quiet").err, "");
}

TEST_F(Hostile, APatternThatBacktracks) {
  split_by("(a+)+b|.");
  EXPECT_EQ(tokenize("aab aaab").code, 0);
  const std::string says =
      "tokenizer.json: key 'pre_tokenizer.pretokenizers[0].pattern.Regex': the pattern backtracks";
  expect_error(tokenize(std::string(60, 'a')), 1, says);
  // Words each of which is just bearable add up.
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::string(19, 'a') + " ";
  expect_error(tokenize(text), 1, says);
}

// Which runs over all that follows for every character that it then takes.
TEST_F(Hostile, APatternThatLooksAhead) {
  split_by("[^x]*x|.");
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::string(5000, 'a') + "x";  // long words are fine
  EXPECT_EQ(tokenize(text).code, 0);
  expect_error(tokenize(std::string(1 << 20, 'a')), 1, "the pattern looks too far ahead on this text");
}

TEST_F(Hostile, IdsOfATokenizer) {
  const Json good = read("tokenizer.json");
  for (const Json& id :
       {Json(int64_t{1} << 31), Json((int64_t{1} << 31) - 1), Json(-1), Json(1.5), Json(uint64_t{1} << 63)}) {
    put(dir_ / "tokenizer.json", good.dump());
    change("tokenizer.json", "/model/vocab/zzz", id);
    expect_error(tokenize("x"), 1,
                 "tokenizer.json: key 'model.vocab': the id of 'zzz' is not an integer below");
    put(dir_ / "tokenizer.json", good.dump());
    change("tokenizer.json", "/added_tokens/0/id", id);
    expect_error(tokenize("x"), 1, "tokenizer.json: key 'added_tokens[0].id'");
  }
  // Within the bounds, and far beyond what the file pays for.
  put(dir_ / "tokenizer.json", good.dump());
  change("tokenizer.json", "/model/vocab/zzz", (1 << 24) - 1);
  expect_error(tokenize("x"), 1, "tokenizer.json: token 'zzz' has the id 16777215 and there are");
}

TEST_F(Hostile, FilesOfAGigabyte) {
  for (const char* name : {"tokenizer.json", "config.json"}) {
    if (!stretch(name, int64_t{1} << 30)) GTEST_SKIP() << "the file system has no sparse files of 1 GiB";
    const std::string says = std::string(name) + ": 1073741824 bytes, more than the ";
    expect_error(name == std::string("config.json") ? logits() : tokenize("x"), 1, says);
  }
  fs::remove(dir_ / "tokenizer.json");
  put(dir_ / "tokenizer.model", "");
  ASSERT_TRUE(stretch("tokenizer.model", int64_t{1} << 30));
  expect_error(tokenize("x"), 1, "tokenizer.model: 1073741824 bytes, more than the ");
}

TEST_F(Hostile, LinesOfALog) {
  const std::string first = "{\"lariat_sweep\":1}\n";
  expect_error(merge(first + std::string(2'000'000, 'x') + "\n"), 1, "log.jsonl: line 2 has 2000000 bytes");
  expect_error(merge(first + std::string(100'000'000, 'x') + "\n"), 1,
               "log.jsonl: 100000020 bytes, more than the ");
  std::string keys = "{";
  for (int i = 0; i < 5000; ++i) keys += "\"" + std::to_string(i) + "\":1,";
  expect_error(merge(first + keys + "\"x\":1}\n"), 1, "log.jsonl: line 2: 5001 keys, more than the ");
  expect_error(merge(first), 1, "log.jsonl: line 1: \"model\" is missing");
}

}  // namespace
}  // namespace lariat::test
