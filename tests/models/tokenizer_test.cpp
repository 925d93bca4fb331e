#include "models/text/tokenizer.h"

#include <chrono>
#include <thread>

#include "models/text/added_tokens.h"
#include "models/text/detokenizer.h"
#include "models/text/unicode.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

Tokenizer small(const std::string& name) { return Tokenizer::load(golden_dir() / name); }

// Words, numbers, several scripts and special tokens.
std::string long_text(size_t bytes, const std::string& special) {
  const std::vector<std::string> parts = {
      "The river ", "carries", " the boats", "\n\n", "  ",     " 12345", "don't",        "河水把船",
      "\u3001",     "e\u0301", "🙂",       " \t",  "x_y(z)", special,  "\u0928\u093f", "."};
  std::string text;
  uint32_t seed = 5;
  while (text.size() < bytes) text += parts[((seed = seed * 1664525 + 1013904223) >> 16) % parts.size()];
  return text;
}

class LongTexts : public testing::TestWithParam<const char*> {};

TEST_P(LongTexts, DecodeTokenByTokenAsAtOnce) {
  const Tokenizer tokenizer = small(GetParam());
  const Ids whole = tokenizer.encode(long_text(700'000, "</s><|im_end|>"), true);
  EXPECT_EQ(decode_one_by_one(tokenizer, whole, true), tokenizer.decode(whole));
}

// The limit is generous for any machine.
TEST_P(LongTexts, OfOneWordAreNotQuadratic) {
  const Tokenizer tokenizer = small(GetParam());
  const auto start = std::chrono::steady_clock::now();
  for (const char* unit : {"abcdefgh", " ", "\n", "河", "-", "e\u0301", "🙂", "1"}) {
    std::string text;
    while (text.size() < 400'000) text += unit;
    EXPECT_FALSE(tokenizer.encode(text, false).empty()) << unit;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, LongTexts,
                         testing::Values("llama3-mini", "qwen-mini", "byte-mini", "llama-mini",
                                         "metaspace-mini", "gemma-mini", "sp-mini"));

TEST(Tokenizer, BosAndEos) {
  const Tokenizer llama3 = small("llama3-mini");
  EXPECT_TRUE(llama3.adds_bos());
  EXPECT_EQ(llama3.bos_id(), llama3.token_to_id("<|begin_of_text|>"));
  EXPECT_EQ(llama3.eos_ids(), Ids{*llama3.token_to_id("<|eot_id|>")});
  EXPECT_EQ(llama3.encode("", true), Ids{*llama3.bos_id()});
  EXPECT_TRUE(llama3.encode("", false).empty());

  const Tokenizer qwen = small("qwen-mini");
  EXPECT_FALSE(qwen.adds_bos());
  EXPECT_FALSE(qwen.bos_id());
  EXPECT_EQ(qwen.encode("a", true), qwen.encode("a", false)) << "no BOS to add";

  const Tokenizer minimind = small("byte-mini");
  EXPECT_FALSE(minimind.adds_bos());
  EXPECT_EQ(minimind.encode("", true), Ids{1}) << "explicitly requested";
}

TEST(Tokenizer, SeveralTokensMayStartAText) {
  json post = read_json(golden_dir() / "llama3-mini" / "tokenizer.json").at("post_processor");
  const json second = {{"SpecialToken", {{"id", "<|eot_id|>"}, {"type_id", 0}}}};
  json& single = post["processors"][1]["single"];
  single.insert(single.begin() + 1, second);
  post["processors"][1]["special_tokens"]["<|eot_id|>"] = {
      {"id", "<|eot_id|>"}, {"ids", {424}}, {"tokens", {"<|eot_id|>"}}};
  const Tokenizer tokenizer = load_changed("llama3-mini", {{"post_processor", post}});
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.prefix(), Ids({420, 424}));
  EXPECT_EQ(tokenizer.encode("", true), Ids({420, 424}));
}

TEST(Tokenizer, EosComesFromTheTokenizer) {
  const TempFolder dir;
  std::filesystem::copy(golden_dir() / "llama3-mini", dir.path, std::filesystem::copy_options::recursive);
  // Settings of the model: see ModelSpec::eos_token_ids.
  dir.put("config.json", R"({"eos_token_id": -1})");
  dir.put("generation_config.json", R"({"eos_token_id": [3, 9]})");
  const Tokenizer tokenizer = Tokenizer::load(dir.path);
  EXPECT_EQ(tokenizer.eos_ids(), Ids{*tokenizer.token_to_id("<|eot_id|>")});
  const json none = {{"eos_token", nullptr}};
  EXPECT_TRUE(load_changed("llama3-mini", json::object(), none).eos_ids().empty());
}

// Matches tokenizers 0.23's decoding of these ids.
TEST(Tokenizer, InvalidBytesAreSeparateTokens) {
  const json decoder = json::parse(R"({"decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"},
      {"type": "Replace", "pattern": {"String": "\ufffd\ufffd"}, "content": "X"}, {"type": "Fuse"}]}})");
  const Tokenizer tokenizer = load_changed("llama-mini", decoder);
  Ids ids;
  for (const char* token : {"a", "<0xFF>", "<0xFE>", "b"})
    ids.push_back(tokenizer.token_to_id(token).value());
  EXPECT_EQ(tokenizer.decode(ids), "a\uFFFD\uFFFDb");
}

TEST(Tokenizer, SentencePieceSettings) {
  const TempFolder dir;
  std::filesystem::copy(golden_dir() / "sp-mini", dir.path, std::filesystem::copy_options::recursive);
  EXPECT_TRUE(Tokenizer::load(dir.path).adds_bos());
  dir.put("tokenizer_config.json", R"({"add_bos_token": false, "added_tokens_decoder":
      {"420": {"content": "<pad>", "special": true}, "421": {"content": "<b>", "special": false}}})");
  const Tokenizer tokenizer = Tokenizer::load(dir.path);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.vocab_size(), 422);
  Ids want = tokenizer.encode("the", false);
  want.insert(want.end(), {420, 421});
  EXPECT_EQ(tokenizer.encode("the<pad><b>", false), want);
  EXPECT_EQ(tokenizer.decode(want), "the<b>");
  EXPECT_EQ(tokenizer.decode(want, false), "the<pad><b>");
}

TEST(Tokenizer, TokensByNameAndId) {
  const Tokenizer tokenizer = small("byte-mini");
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer.id_to_token(2), "<|im_end|>");
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.token_to_id("no such token"));
  for (int32_t id : {-1, 1 << 30}) {
    EXPECT_EQ(tokenizer.id_to_token(id), "");
    EXPECT_EQ(tokenizer.decode(Ids{id}), "");
  }
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacements) {
  for (const char* name : {"llama3-mini", "llama-mini", "sp-mini"}) {
    const Tokenizer tokenizer = small(name);
    EXPECT_EQ(tokenizer.encode("a\xFF\xE4\xB8z", false), tokenizer.encode("a\uFFFD\uFFFDz", false));
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = small("qwen-mini");
  const std::string text = long_text(50'000, "<|im_end|>");
  const Ids want = tokenizer.encode(text, false);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = tokenizer.encode(text, false); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, want);
}

TEST(Tokenizer, StreamDecoderHoldsBackPartialCharacters) {
  const Tokenizer tokenizer = small("byte-mini");
  const Ids ids = tokenizer.encode("🙂", false);
  ASSERT_GE(ids.size(), 2u);
  StreamDecoder decoder(tokenizer);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids.back()), "🙂");
  EXPECT_EQ(decoder.flush(), "");
  decoder.push(ids[0]);
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.push(tokenizer.encode("a", false)[0]), "a") << "a new text after flush()";
}

TEST(Tokenizer, StripHoldsBackTheEnd) {
  using Kind = tok::DecodeStep::Kind;
  const std::vector<tok::DecodeStep> steps = {
      {.kind = Kind::kFuse, .pattern = {}, .content = {}},
      {.kind = Kind::kStrip, .pattern = {}, .content = "_", .start = 2, .stop = 1}};
  const auto decode = [&](const std::vector<std::string>& tokens) {
    tok::DecodeChain chain(steps);
    std::string out;
    for (const std::string& token : tokens) chain.push(token, out);
    chain.finish(out);
    return out;
  };
  EXPECT_EQ(decode({"_", "__a", "_", "_"}), "_a_");
  EXPECT_EQ(decode({"a_", "_b", "c_"}), "a__bc");
  EXPECT_EQ(decode({"_"}), "");
  EXPECT_EQ(decode({}), "");
}

TEST(Tokenizer, AddedTokensWithACommonPrefix) {
  tok::AddedTokens added;
  for (const char* content : {"ab", "abcd", "bc", "x"}) {
    added.add(content, {.content = content,
                        .id = static_cast<int32_t>(content[0] * 10 + content[std::strlen(content) - 1])});
  }
  std::string seen;
  added.split("zabcabcdxx",
              [&](std::string_view part, int32_t id) { seen += std::string(part) + (id < 0 ? " " : "* "); });
  EXPECT_EQ(seen, "z ab* c abcd* x* x* ");
}

}  // namespace
}  // namespace lariat::test
