#include "models/text/regex.h"

#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using tok::Regex;

std::vector<std::string> matches(const std::string& pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  tok::RegexScratch scratch;
  std::vector<std::string> found;
  size_t begin = 0, end = 0;
  for (size_t at = 0; regex.find(text, at, false, begin, end, scratch) == Regex::Found::kMatch; at = end) {
    found.emplace_back(text.substr(begin, end - begin));
  }
  return found;
}

using Strings = std::vector<std::string>;

TEST(TokenizerRegex, SpaceIsUnicodeWhiteSpace) {
  EXPECT_EQ(matches(R"(\s+)", "a\u00a0\u3000b\u2028c\u0085"), (Strings{"\u00a0\u3000", "\u2028", "\u0085"}));
  EXPECT_EQ(matches(R"(\s+)", "a\u180eb\u200bc"), Strings{}) << "not white space since Unicode 6.3";
  EXPECT_EQ(matches(R"([^\s]+)", "a\u180eb c"), (Strings{"a\u180eb", "c"}));
  EXPECT_EQ(matches(R"(\S+)", "ab cd"), (Strings{"ab", "cd"}));
}

TEST(TokenizerRegex, WordsAndCases) {
  EXPECT_EQ(matches(R"(\w+)", "h\u00e9llo_1 \u0939\u093f\u0928 -"),
            (Strings{"h\u00e9llo_1", "\u0939\u093f\u0928"}));
  EXPECT_EQ(matches(R"((?i:'s|'t))", "'S 'T '\u017f"), (Strings{"'S", "'T", "'\u017f"}));
  EXPECT_EQ(matches(R"(^.)", "ab\ncd"), (Strings{"a", "c"}));
  EXPECT_EQ(matches(R"(a{,2}b)", "aaab"), Strings{"aab"});
}

TEST(TokenizerRegex, WhatIsNotUnderstoodIsNamed) {
  for (const char* pattern :
       {R"(\h+)", R"(\bx)", R"([\S]x)", "[a&&b]", "[a[b]]", "a{1,3}+", R"(\Gx)", R"(x\)", "[]a]"}) {
    EXPECT_NE(error_of([&] { Regex(pattern, "FILE: key 'k'"); }).find("FILE: key 'k': the pattern uses"),
              std::string::npos)
        << pattern;
  }
  for (const char* pattern : {"(a", "*", "[a", R"(\p{Nonsense})", ""}) {
    EXPECT_EQ(error_of([&] { Regex(pattern, "FILE"); }).rfind("FILE: ", 0), 0u) << pattern;
  }
}

TEST(TokenizerRegex, RunawayBacktrackingIsAnError) {
  const std::string text = std::string(200, 'a') + "!";
  for (const char* pattern : {"(a+)+$", "(a|a)*[bc]", "(?:a|aa)+[bc]"}) {
    const std::string what = error_of([&] { matches(pattern, text); });
    EXPECT_NE(what.find("backtracks without measure"), std::string::npos) << what;
  }
}

TEST(TokenizerRegex, LongRunsAreLinear) {
  const std::string spaces(2'000'000, ' '), word(2'000'000, 'x');
  EXPECT_EQ(matches(tok::kGpt2Pattern, spaces + "x").size(), 2u);
  EXPECT_EQ(matches(tok::kGpt2Pattern, word).size(), 1u);
}

TEST(TokenizerRegex, MoreToCome) {
  const Regex regex(tok::kGpt2Pattern, "test");
  EXPECT_TRUE(regex.streams());
  EXPECT_FALSE(Regex("(?<=a)b", "test").streams());
  EXPECT_FALSE(Regex("^a", "test").streams());
  EXPECT_FALSE(Regex("a*", "test").streams());
  tok::RegexScratch scratch;
  size_t begin = 0, end = 0;
  EXPECT_EQ(regex.find("ab cd", 0, true, begin, end, scratch), Regex::Found::kMatch);
  EXPECT_EQ(end, 2u);
  EXPECT_EQ(regex.find("ab cd", 2, true, begin, end, scratch), Regex::Found::kPartial);
  EXPECT_EQ(begin, 2u);
}

}  // namespace
}  // namespace lariat::test
