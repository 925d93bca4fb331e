#include "models/text/regex.h"

#include "models/text/pretokenizer.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using tok::Regex;

std::vector<std::string> matches(const std::string& pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  tok::RegexScratch scratch(text.size());
  std::vector<std::string> found;
  size_t begin = 0, end = 0;
  for (size_t at = 0; regex.find(text, at, begin, end, scratch); at = end)
    found.emplace_back(text.substr(begin, end - begin));
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

// HF tokenizers' Split (golden/tokenizers/patterns.json).
TEST(TokenizerRegex, PatternsSplitAsInOniguruma) {
  const nlohmann::json golden = read_json(golden_dir() / "patterns.json");
  const Strings texts = golden.at("texts");
  EXPECT_GT(golden.at("pieces").size(), 140u);
  for (const auto& [pattern, want] : golden.at("pieces").items()) {
    SCOPED_TRACE(pattern);
    tok::PreTokenizeStep step;
    step.regex.emplace(pattern, "test");
    for (size_t i = 0; i < texts.size(); ++i) {
      tok::RegexScratch scratch(texts[i].size());
      std::vector<size_t> got;  // bytes per piece
      pre_tokenize({step}, texts[i], true, scratch,
                   [&](std::string_view word) { got.push_back(word.size()); });
      EXPECT_EQ(got, want.at(i).get<std::vector<size_t>>()) << nlohmann::json(texts[i]).dump();
    }
  }
  for (const std::string pattern : golden.at("refused"))
    EXPECT_NE(error_of([&] { Regex(pattern, "test"); }), "") << pattern;
}

TEST(TokenizerRegex, UnsupportedPatternsAreNamed) {
  for (const char* pattern :
       {R"(\h+)", R"(\bx)", "a{1,3}+", "a{2}?", R"(\Gx)", R"(x\)", R"([\h])", R"([\q])", R"([\101])",
        R"([a-[b]])", R"((?i)[a&&A])", R"((?i)[[^a]b])", R"((?i:x[a-z&&[^b]]))", R"((?i)\p{Lu})",
        R"((?i)[[:upper:]])", "(?i)a(?#b", "[[:alpha"}) {
    EXPECT_TRUE(names(error_of([&] { Regex(pattern, "FILE: key 'k'"); }), "FILE: key 'k'")) << pattern;
  }
  for (const char* pattern : {"(a", "*", "[a", R"(\p{Nonsense})", ""}) {
    EXPECT_EQ(error_of([&] { Regex(pattern, "FILE"); }).rfind("FILE: ", 0), 0u) << pattern;
  }
}

TEST(TokenizerRegex, RunawayBacktrackingIsAnError) {
  const std::string text = std::string(200, 'a') + "!";
  for (const char* pattern : {"(a+)+$", "(a|a)*[bc]", "(?:a|aa)+[bc]"}) {
    const std::string what = error_of([&] { matches(pattern, text); });
    EXPECT_EQ(what.rfind("test: ", 0), 0U) << what;
  }
}

TEST(TokenizerRegex, LongRunsAreLinear) {
  const std::string spaces(2'000'000, ' '), word(2'000'000, 'x');
  EXPECT_EQ(matches(tok::kGpt2Pattern, spaces + "x").size(), 2u);
  EXPECT_EQ(matches(tok::kGpt2Pattern, word).size(), 1u);
}

}  // namespace
}  // namespace lariat::test
