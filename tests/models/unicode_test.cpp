#include "models/text/unicode.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lariat {
namespace {

std::string assemble(std::string_view bytes, size_t step, Utf8Assembler::Replace replace) {
  Utf8Assembler assembler(replace);
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += step) assembler.push(bytes.substr(at, step), out);
  assembler.finish(out);
  return out;
}

TEST(Unicode, InvalidBytesBecomeReplacements) {
  struct Case {
    std::string_view bytes, per_prefix, per_byte;
  };
  // First column: Unicode 15, section 3.9 (U+FFFD substitution).
  const Case cases[] = {
      {"abc", "abc", "abc"},
      {"h\xC3\xA9", "h\u00e9", "h\u00e9"},
      {"\x80", "\uFFFD", "\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD", "\uFFFD\uFFFD"},
      {"\xE0\x80\xBF", "\uFFFD\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\x41",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"\xF0\x9F\x99", "\uFFFD", "\uFFFD\uFFFD\uFFFD"},
  };
  for (const Case& c : cases) {
    for (size_t step : {1, 2, 3, 100}) {
      EXPECT_EQ(assemble(c.bytes, step, Utf8Assembler::Replace::kPerPrefix), c.per_prefix);
      EXPECT_EQ(assemble(c.bytes, step, Utf8Assembler::Replace::kPerByte), c.per_byte);
      std::string whole(c.bytes);
      if (!is_utf8(whole)) whole = replace_all(std::string(c.bytes.size(), '!'), "!", "\uFFFD");
      EXPECT_EQ(assemble(c.bytes, step, Utf8Assembler::Replace::kWhole), whole);
    }
  }
}

TEST(Unicode, NormalForms) {
  // UAX 15, figures 3 to 6.
  EXPECT_EQ(normalize("e\u0301 \u212b \u1e9b\u0323 plain", NormalForm::kNfc),
            "\u00e9 \u00c5 \u1e9b\u0323 plain");
  EXPECT_EQ(normalize("\u1e9b\u0323", NormalForm::kNfd), "\u017f\u0323\u0307");
  EXPECT_EQ(normalize("\u1e9b\u0323", NormalForm::kNfkc), "\u1e69");
  EXPECT_EQ(normalize("\u1e9b\u0323", NormalForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(normalize("\u1112\u1161\u11ab", NormalForm::kNfc), "\ud55c");
  EXPECT_EQ(normalize("\ufb01", NormalForm::kNfc), "\ufb01");
  EXPECT_EQ(normalize("\ufb01", NormalForm::kNfkc), "fi");
}

TEST(Unicode, LongRunsOfMarksAreLinear) {
  std::string marks = "e";
  for (int i = 0; i < 200'000; ++i) marks += "\u0301\u0323";  // descending classes: the worst case
  const auto start = std::chrono::steady_clock::now();
  const std::string out = normalize(marks, NormalForm::kNfc);
  // A fraction of a second, seconds under a sanitizer; quadratic code: minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(out.substr(0, 3), "\u1eb9");
  EXPECT_GT(out.size(), 100'000u);
}

TEST(Unicode, Classes) {
  for (char32_t c : {0x9, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x3000}) EXPECT_TRUE(is_white_space(c)) << int(c);
  for (char32_t c : {0x180E, 0x200B, 0x1F, 0xFEFF}) EXPECT_FALSE(is_white_space(c)) << int(c);
  for (char32_t c : {0x30, 0x663, 0x2167, 0xBD}) EXPECT_TRUE(is_numeric(c)) << int(c);
  for (char32_t c : {0x41, 0x5F, 0x301, 0x4E2D, 0x24B6, 0x200D}) EXPECT_TRUE(is_word_char(c)) << int(c);
  for (char32_t c : {0x2D, 0x20, 0xBD, 0x1F642}) EXPECT_FALSE(is_word_char(c)) << int(c);
}

}  // namespace
}  // namespace lariat
