// Parsers refuse damage that their libraries accept.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "models/text/sentencepiece.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using tok::checked_sentencepiece;

// A string, a float or a number below 128.
std::string text_field(int number, const std::string& text) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  for (size_t size = text.size(); true; size >>= 7) {
    out += static_cast<char>((size & 0x7F) | (size > 0x7F ? 0x80 : 0));
    if (size <= 0x7F) break;
  }
  return out + text;
}
std::string float_field(int number, float value) {
  std::string out(5, static_cast<char>(number << 3 | 5));
  std::memcpy(out.data() + 1, &value, sizeof value);
  return out;
}
std::string number_field(int number, char value) { return {static_cast<char>(number << 3), value}; }

std::string piece(const std::string& text, float score = 0, char type = 1) {
  return text_field(1, text_field(1, text) + float_field(2, score) + number_field(3, type));
}

std::string refusal_of_model(const std::string& model) {
  return error_of([&] { checked_sentencepiece(model, "tokenizer.model"); });
}

void expect_refusal(const std::string& model, std::string_view words = "") {
  const std::string what = refusal_of_model(model);
  EXPECT_EQ(what.rfind("tokenizer.model: ", 0), 0U) << what;
  EXPECT_TRUE(names(what, words));
}

TEST(HostileSentencePiece, Pieces) {
  EXPECT_EQ(refusal_of_model(piece("<unk>", 0, 2) + piece("a", -1.5F)), "");
  expect_refusal(piece(""), "0");
  expect_refusal(piece("a") + piece(std::string("\0b", 2)), "1");
  expect_refusal(piece(std::string(600, 'a')), "0 | 512");
  expect_refusal(piece(std::string(6000, 'a')), "0");
  for (const float score :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e30F})
    expect_refusal(piece("a", score), "0");
  std::string nested;
  for (size_t i = 1; i <= 60; ++i) nested += piece(std::string(i, 'a'), 0, 4);
  EXPECT_EQ(refusal_of_model(nested + piece("b", 0, 4)), "");
  expect_refusal(nested + piece(std::string(61, 'a'), 0, 4));
}

TEST(HostileSentencePiece, Messages) {
  expect_refusal(piece("a").substr(0, 5));
  expect_refusal("\x0B");  // a group
  expect_refusal(text_field(1, "\x0A\x7F"), "0");
  expect_refusal(text_field(2, "\x0A\x7F"), "trainer_spec");
  expect_refusal(text_field(3, "\x0A\x7F"), "normalizer_spec");
  // Self tests (4), the denormalizer (5) and unknown fields are ignored.
  EXPECT_EQ(
      checked_sentencepiece(text_field(4, "x") + piece("a") + text_field(5, "y") + text_field(9, "z"), "f")
          .bytes,
      piece("a"));
}

TEST(HostileSentencePiece, TrainerAndNormalizerSpecs) {
  const auto plain = checked_sentencepiece(piece("a"), "f");
  EXPECT_FALSE(plain.bpe);
  EXPECT_TRUE(plain.plain_normalizer && plain.dummy_prefix && plain.removes_spaces && plain.escapes_spaces);
  const auto bpe =
      checked_sentencepiece(piece("a") + text_field(2, number_field(3, 2)) +
                                text_field(3, number_field(3, 0) + number_field(4, 0) + number_field(5, 0)),
                            "f");
  EXPECT_TRUE(bpe.bpe);
  EXPECT_FALSE(bpe.dummy_prefix || bpe.removes_spaces || bpe.escapes_spaces);
}

std::string with_charsmap(uint32_t trie_bytes, const std::vector<uint32_t>& units,
                          const std::string& replacements) {
  std::string blob(4 + 4 * units.size(), '\0');
  std::memcpy(blob.data(), &trie_bytes, 4);
  std::memcpy(blob.data() + 4, units.data(), 4 * units.size());
  return text_field(3, text_field(2, blob + replacements));
}

TEST(HostileSentencePiece, Charsmaps) {
  const std::string nul(1, '\0');
  const auto unit = [](uint32_t offset, uint32_t label, bool leaf) {
    return offset << 10 | (leaf ? 1U << 8 : 0) | label;
  };
  std::vector<uint32_t> trie(512, 1U << 31);  // labels of no byte
  trie[0] = unit(256, 0, false);              // the root's children: 256 ^ label
  trie[256 ^ 'a'] = unit(128, 'a', true);     // the value of "a": 256 ^ 'a' ^ 128
  trie[256 ^ 'a' ^ 128] = 1U << 31 | 2;       // third byte of the replacements
  EXPECT_EQ(refusal_of_model(with_charsmap(2048, trie, "x" + nul + "y" + nul)), "");
  expect_refusal(with_charsmap(2048, trie, nul + nul));
  expect_refusal(with_charsmap(2048, trie, "x" + nul + "y"));
  expect_refusal(with_charsmap(2048, trie, std::string(300, 'x') + nul));
  expect_refusal(with_charsmap(2048, trie, ""));
  expect_refusal(with_charsmap(2049, trie, nul));
  expect_refusal(with_charsmap(0xFFFFFC00U, trie, nul));
  auto far = trie;
  far[256 ^ 'a'] = unit(4096, 'a', false);
  expect_refusal(with_charsmap(2048, far, nul + nul + nul));
  auto endless = trie;
  endless[256 ^ 'a'] = unit('a', 'a', false);  // back to 256: "aaaa..."
  expect_refusal(with_charsmap(2048, endless, nul + nul + nul), "32");
}

// 41 -> 61, 42 43 -> 62 63 64, FF21 -> 41 (tests/fuzz/seeds.sh).
TEST(HostileSentencePiece, AValidCharsmapWorks) {
  const TempFolder dir;
  std::filesystem::copy(source_dir() / "tests/fuzz/seeds/sentencepiece-charsmap.model",
                        dir.path / "tokenizer.model");
  const Tokenizer tokenizer = Tokenizer::load(dir.path);
  EXPECT_EQ(tokenizer.encode("the BCs", false), tokenizer.encode("the bcds", false));
  EXPECT_EQ(tokenizer.encode("A", false), tokenizer.encode("a", false));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("BC <us>x", false), false), "bcd <us>x");
}

TEST(HostileJson, TooManyValues) {
  std::string text = "[";
  for (int i = 0; i < 9'000'000; ++i) text += "0,";
  EXPECT_TRUE(names(error_of([&] { parse_json(text + "0]", "file"); }), "file | 9000000"));
}

TEST(HostileJson, ADuplicateKeyIsNamed) {
  const auto error = [](const std::string& text) { return error_of([&] { parse_json(text, "file"); }); };
  EXPECT_TRUE(names(error(R"({"a": {"b": 1, "b": 2}})"), "file | b"));
  EXPECT_TRUE(names(error(R"([{"ab": 1}, {"ab": [{"c:{": ":", "\u0061b": 1, "ab": 2}]}])"), "file | ab"));
  EXPECT_NO_THROW(parse_json(R"({"a": {"a": {"a": ":::\\\":"}}, "b": {"a": 1}})", "file"));
  EXPECT_TRUE(
      names(error_of([&] { parse_ordered_json(R"({"key": 1, "b": 2, "key": 1})", "file"); }), "file | key"));
}

}  // namespace
}  // namespace lariat::test
