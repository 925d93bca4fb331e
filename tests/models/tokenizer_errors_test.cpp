// A damaged or unknown tokenizer file gives one line with the file and the key.
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;

std::string error_with(const std::string& pointer, const json& value) {
  json spec = read_json(golden_dir() / "llama-mini" / "tokenizer.json");
  if (pointer.empty()) {
    spec = value;
  } else {
    spec[json::json_pointer(pointer)] = value;
  }
  const TempFolder dir;
  dir.put("tokenizer.json", spec.dump());
  return error_of([&] { Tokenizer::load(dir.path); });
}

TEST(TokenizerErrors, NameFileAndKey) {
  struct Case {
    const char* pointer;
    json value;
    const char* says;
  };
  const json added = {{"id", 7}, {"content", "<x>"}, {"special", true}};
  const std::vector<Case> cases = {
      {"", json::array(), "expected an object"},
      {"/version", "2.0", "'version'"},
      {"/model", nullptr, "'model'"},
      {"/model/type", "Unigram", "'model.type': 'Unigram' is not supported; lariat knows BPE"},
      {"/model/vocab", json::array(), "'model.vocab'"},
      {"/model/vocab", json::object(), "'model.vocab'"},
      {"/model/vocab/a", -1, "the id of 'a'"},
      {"/model/vocab/a", 1.5, "the id of 'a'"},
      {"/model/vocab/a", 1 << 30, "the id of 'a'"},
      {"/model/vocab/a", 0, "id 0 is given twice"},
      {"/model/vocab/", 5000, "an empty token"},
      {"/model/merges", "x", "'model.merges'"},
      {"/model/merges/3", "a b c", "'model.merges[3]'"},
      {"/model/merges/3", "ab", "'model.merges[3]'"},
      {"/model/merges/3", json::array({"a"}), "'model.merges[3]'"},
      {"/model/merges/3", "a nosuchtoken", "'nosuchtoken' is not in model.vocab"},
      {"/model/unk_token", "<nope>", "'model.unk_token'"},
      {"/model/dropout", 0.1, "'model.dropout'"},
      {"/model/continuing_subword_prefix", "##", "'model.continuing_subword_prefix'"},
      {"/model/byte_fallback", "yes", "'model.byte_fallback': expected true or false"},
      {"/normalizer", {{"type", "Lowercase"}}, "'normalizer.type': 'Lowercase' is not supported"},
      {"/normalizer/normalizers/0/type", "Precompiled", "'normalizer.normalizers[0].type'"},
      {"/normalizer/normalizers/1/pattern", {{"Regex", "x"}}, "'normalizer.normalizers[1].pattern.Regex'"},
      {"/normalizer/normalizers/1/pattern", {{"String", ""}}, "an empty pattern"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "'pre_tokenizer.type': 'Whitespace' is not supported"},
      {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, "expected one character"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
       "'pre_tokenizer.pattern.Regex': not a usable pattern"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}},
       "'pre_tokenizer.behavior': 'Sideways'"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
       "nothing may follow ByteLevel"},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "'post_processor.type'"},
      {"/post_processor/special_tokens/<s>/ids/0", 999999, "id 999999 is not a token"},
      {"/post_processor/special_tokens", json::object(), "'post_processor.special_tokens.<s>'"},
      {"/decoder", {{"type", "WordPiece"}}, "'decoder.type'"},
      {"/decoder/decoders/3/content", "", "'decoder.decoders[3].content'"},
      {"/decoder/decoders/3/start", -1, "'decoder.decoders[3].start'"},
      {"/added_tokens/0", added, "id 7 belongs to both"},
      {"/added_tokens/0/id", 999, "has the ids"},
      {"/added_tokens/0/id", "x", "'added_tokens[0].id'"},
      {"/added_tokens/0/content", "", "'added_tokens[0].content'"},
  };
  for (const Case& c : cases) {
    const std::string what = error_with(c.pointer, c.value);
    EXPECT_NE(what.find("tokenizer.json: "), std::string::npos) << what;
    EXPECT_NE(what.find(c.says), std::string::npos) << c.pointer << " = " << c.value << " says: " << what;
  }
}

TEST(TokenizerErrors, ChainsThatGrowWithoutMeasure) {
  const json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const json chain = {{"type", "Sequence"}, {"normalizers", json::array()}, {"decoders", json::array()}};
  json normalizer = chain, decoder = chain, endless = chain;
  for (int i = 0; i < 30; ++i) {
    normalizer["normalizers"].push_back(twice);
    decoder["decoders"].push_back(twice);
  }
  for (int i = 0; i < 2000; ++i) endless["decoders"].push_back(twice);
  const Tokenizer grows = load_changed("llama-mini", {{"normalizer", normalizer}});
  EXPECT_NE(error_of([&] { grows.encode("aaa", false); }).find("times longer"), std::string::npos);
  const Tokenizer unfolds = load_changed("llama-mini", {{"decoder", decoder}});
  EXPECT_NE(error_of([&] { unfolds.decode(unfolds.encode("a", false)); }).find("of one token"),
            std::string::npos);
  EXPECT_NE(error_with("/decoder", endless).find("more than 32 components"), std::string::npos);
}

TEST(TokenizerErrors, DamagedFiles) {
  struct Case {
    const char* file;
    std::string text;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"notes.txt", "", "no tokenizer.json and no tokenizer.model"},
      {"tokenizer.json", "{\"a\": ", "not valid JSON"},
      {"tokenizer.json", std::string(100'000, '['), "nested deeper"},
      {"tokenizer.json", "\"\xFF\"", "not valid JSON"},
      {"tokenizer.model", "IQ== 0\nIg== 1\n", "tiktoken"},
      {"qwen.tiktoken", "IQ== 0\nIg== 1\n", "has 2 of the 256 bytes as tokens"},
      {"qwen.tiktoken", "IQ== 0\nI g== 1\n", "line 2 is no token in base64"},
      {"qwen.tiktoken", "IQ== 0\nIg== -1\n", "line 2 is no token in base64"},
      {"qwen.tiktoken", "IQ== 0\n\nIg== 99999999\n", "line 3 is no token in base64"},
      {"qwen.tiktoken", "IQ== 0\r\nIQ== 1\n", "line 2 has the token of another line"},
      {"qwen.tiktoken", std::string(100'000, 'A') + " 0\n", "of at most 256 bytes"},
      {"tokenizer.model", "rubbish", "not a usable SentencePiece model"},
      {"tokenizer.model", "", "not a usable SentencePiece model"},
      {"tokenizer_config.json", "[]", "expected an object"},
      {"tokenizer_config.json", R"({"bos_token": 3})", "'bos_token': expected a token"},
      {"tokenizer_config.json", R"({"add_bos_token": "yes"})", "'add_bos_token': expected true or false"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "not an id"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"99999999": {"content": "a"}}})", "not an id"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"4": {"content": "a new name"}}})", "id 4"},
  };
  for (const Case& c : cases) {
    const TempFolder dir;
    dir.put(c.file, c.text);
    if (c.file == std::string("tokenizer_config.json"))
      std::filesystem::copy(golden_dir() / "byte-mini" / "tokenizer.json", dir.path);
    const std::string what = error_of([&] { Tokenizer::load(dir.path); });
    EXPECT_NE(what.find(c.says), std::string::npos) << c.file << " " << c.text << " says: " << what;
  }
}

// No cut or flipped byte may do anything but load or throw Error.
TEST(TokenizerErrors, MutatedFilesLoadOrThrow) {
  uint32_t seed = 11;
  const auto next = [&](size_t n) {
    return static_cast<size_t>((seed = seed * 1664525 + 1013904223) >> 8) % n;
  };
  for (const char* name : {"llama-mini/tokenizer.json", "qwen-mini/tokenizer.json", "sp-mini/tokenizer.model",
                           "qwen-tiktoken-mini/qwen.tiktoken"}) {
    const std::string good = read_file(golden_dir() / name, 1 << 20);
    const TempFolder dir;
    for (int round = 0; round < 150; ++round) {
      std::string bad = good;
      if (round % 5 == 0) bad.resize(next(bad.size()));
      for (size_t i = 0; i < 1 + next(4) && !bad.empty(); ++i)
        bad[next(bad.size())] = static_cast<char>(next(256));
      dir.put(std::filesystem::path(name).filename(), bad);
      try {
        const Tokenizer tokenizer = Tokenizer::load(dir.path);
        const auto ids = tokenizer.encode("The river <s> 12 \u6cb3 don't", true);
        for (int32_t id : ids) EXPECT_LT(id, tokenizer.vocab_size());
        tokenizer.decode(ids);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace lariat::test
