// One line names file and key.
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
    const char* words = "";
  };
  const json added = {{"id", 7}, {"content", "<x>"}, {"special", true}};
  const std::vector<Case> cases = {
      {"", json::array()},
      {"/version", "2.0", "version | 1.0"},
      {"/model", nullptr, "model"},
      {"/model/type", "Unigram", "model.type | Unigram | BPE"},
      {"/model/vocab", json::array(), "model.vocab"},
      {"/model/vocab", json::object(), "model.vocab"},
      {"/model/vocab/a", -1, "model.vocab | a"},
      {"/model/vocab/a", 1.5, "model.vocab | a"},
      {"/model/vocab/a", 1 << 30, "model.vocab | a"},
      {"/model/vocab/a", 0, "model.vocab | 0"},
      {"/model/vocab/", 5000, "model.vocab"},
      {"/model/merges", "x", "model.merges"},
      {"/model/merges/3", "a b c", "model.merges[3]"},
      {"/model/merges/3", "ab", "model.merges[3]"},
      {"/model/merges/3", json::array({"a"}), "model.merges[3]"},
      {"/model/merges/3", "a nosuchtoken", "nosuchtoken | model.vocab"},
      {"/model/unk_token", "<nope>", "model.unk_token"},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/byte_fallback", "yes", "model.byte_fallback"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer.type | Lowercase"},
      {"/normalizer/normalizers/0/type", "Precompiled", "normalizer.normalizers[0].type"},
      {"/normalizer/normalizers/1/pattern", {{"Regex", "x"}}, "normalizer.normalizers[1].pattern.Regex"},
      {"/normalizer/normalizers/1/pattern", {{"String", ""}}, "normalizer.normalizers[1].pattern.String"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer.type | Whitespace"},
      {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, "pre_tokenizer.replacement"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
       "pre_tokenizer.pattern.Regex"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}},
       "pre_tokenizer.behavior | Sideways"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
       "pre_tokenizer.pretokenizers[1] | ByteLevel"},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "post_processor.type"},
      {"/post_processor/special_tokens/<s>/ids/0", 999999, "post_processor | 999999"},
      {"/post_processor/special_tokens", json::object(), "post_processor.special_tokens.<s>"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder.type"},
      {"/decoder/decoders/3/content", "", "decoder.decoders[3].content"},
      {"/decoder/decoders/3/start", -1, "decoder.decoders[3].start"},
      {"/added_tokens/0", added, "7 | <0x04> | <x>"},
      {"/added_tokens/0/id", 999, "<unk> | 0 | 999"},
      {"/added_tokens/0/id", "x", "added_tokens[0].id"},
      {"/added_tokens/0/id", uint64_t{1} << 63, "added_tokens[0].id"},
      {"/model/vocab/zzz", (1 << 24) - 1, "zzz | 16777215"},
      {"/model/vocab/zzz", uint64_t{1} << 63, "model.vocab | zzz"},
      {"/added_tokens/0/content", "", "added_tokens[0].content"},
  };
  for (const Case& c : cases) {
    const std::string what = error_with(c.pointer, c.value);
    EXPECT_TRUE(names(what, std::string("tokenizer.json | ") + c.words)) << c.pointer << " = " << c.value;
  }
}

TEST(TokenizerErrors, UnboundedChains) {
  const json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const json chain = {{"type", "Sequence"}, {"normalizers", json::array()}, {"decoders", json::array()}};
  json normalizer = chain, decoder = chain, endless = chain;
  for (int i = 0; i < 30; ++i) {
    normalizer["normalizers"].push_back(twice);
    decoder["decoders"].push_back(twice);
  }
  for (int i = 0; i < 2000; ++i) endless["decoders"].push_back(twice);
  const Tokenizer grows = load_changed("llama-mini", {{"normalizer", normalizer}});
  EXPECT_NE(error_of([&] { grows.encode("aaa", false); }), "");
  const Tokenizer unfolds = load_changed("llama-mini", {{"decoder", decoder}});
  EXPECT_NE(error_of([&] { unfolds.decode(unfolds.encode("a", false)); }), "");
  EXPECT_TRUE(names(error_with("/decoder", endless), "decoder | 32"));
}

TEST(TokenizerErrors, DamagedFiles) {
  struct Case {
    const char* file;
    std::string text;
    const char* words = "";
  };
  const std::vector<Case> cases = {
      {"notes.txt", "", "tokenizer.json | tokenizer.model"},
      {"tokenizer.json", "{\"a\": ", "JSON"},
      {"tokenizer.json", std::string(100'000, '['), "JSON"},
      {"tokenizer.json", "\"\xFF\"", "JSON"},
      {"tokenizer.model", "IQ== 0\nIg== 1\n", "tiktoken"},
      {"qwen.tiktoken", "IQ== 0\nIg== 1\n", "2 | 256"},
      {"qwen.tiktoken", "IQ== 0\nI g== 1\n", "2"},
      {"qwen.tiktoken", "IQ== 0\nIg== -1\n", "2"},
      {"qwen.tiktoken", "IQ== 0\n\nIg== 99999999\n", "3"},
      {"qwen.tiktoken", "IQ== 0\r\nIQ== 1\n", "2"},
      {"qwen.tiktoken", std::string(100'000, 'A') + " 0\n", "256"},
      {"tokenizer.model", "rubbish", "SentencePiece"},
      {"tokenizer.model", "", "SentencePiece"},
      {"tokenizer_config.json", "[]"},
      {"tokenizer_config.json", R"({"bos_token": 3})", "bos_token"},
      {"tokenizer_config.json", R"({"add_bos_token": "yes"})", "add_bos_token"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
       "added_tokens_decoder"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"99999999": {"content": "a"}}})",
       "added_tokens_decoder"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"4": {"content": "a new name"}}})", "4"},
  };
  for (const Case& c : cases) {
    const TempFolder dir;
    dir.put(c.file, c.text);
    if (c.file == std::string("tokenizer_config.json"))
      std::filesystem::copy(golden_dir() / "byte-mini" / "tokenizer.json", dir.path);
    const std::string what = error_of([&] { Tokenizer::load(dir.path); });
    EXPECT_TRUE(names(what, dir.path.string()));
    EXPECT_TRUE(names(what, c.words)) << c.file << " " << c.text;
  }
}

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
