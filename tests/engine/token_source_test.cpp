#include "engine/eval/measure/token_source.h"

#include <gtest/gtest.h>

#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

TEST(TokenSource, ReadsOnlyTheNeededPartOfAFile) {
  const TempFolder folder;
  const auto whole = folder.path / "whole.txt", bad = folder.path / "bad.txt";
  std::string text;
  while (text.size() < 3000) text += "The river carries the boats, \u6cb3\u628a\u8239 ";
  folder.put("whole.txt", "\xEF\xBB\xBF" + text);
  folder.put("bad.txt", text + "\xFF");
  for (const char* name : {"byte-mini", "llama-mini", "sp-mini", "sp-unigram-mini"}) {
    const Tokenizer tokenizer = Tokenizer::load(golden_dir() / "tokenizers" / name);
    const std::vector<int32_t> ids = tokenizer.encode(text, false);
    for (const int64_t limit : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{50}, int64_t{1} << 60}) {
      const TokenSource source = read_tokens(whole, tokenizer, limit);
      const auto size = static_cast<int64_t>(ids.size()), want = limit > 0 ? std::min(limit, size) : size;
      ASSERT_EQ(source.size(), want) << name;
      const auto got = source.range(0, want);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), ids.begin())) << name << ", " << limit;
    }
    EXPECT_EQ(read_tokens(bad, tokenizer, 7).size(), 7);
    const std::string want = bad.string() + " | " + std::to_string(text.size()) + " | UTF-8";
    EXPECT_TRUE(names(error_of([&] { read_tokens(bad, tokenizer, 0); }), want)) << name;
  }
}

}  // namespace
}  // namespace lariat::test
