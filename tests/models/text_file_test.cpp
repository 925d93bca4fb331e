#include "models/io/text_file.h"

#include "kernels/counted.h"
#include "models/text/unicode.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using namespace std::string_literals;

TEST(TextFile, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(without_bom("\xEF\xBB\xBFone", "a text"), "one");
  EXPECT_EQ(without_bom("\xEF\xBB\xBF\xEF\xBB\xBF", "a text"), "\xEF\xBB\xBF");
  EXPECT_EQ(without_bom("one \xEF\xBB\xBF", "a text"), "one \xEF\xBB\xBF");
  EXPECT_EQ(without_bom("\xEF\xBB", "a text"), "\xEF\xBB");
  EXPECT_EQ(without_bom("", "a text"), "");
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{\"a\": 1}", "a file")["a"], 1);
}

TEST(TextFile, Utf16IsNamed) {
  for (const std::string& text : {"\xFF\xFEo\0n\0"s, "\xFE\xFF\0o\0n"s, "\xFF\xFE"s, "o\0n\0"s, "\0{\0}"s})
    EXPECT_TRUE(names(error_of([&] { without_bom(text, "a text"); }), "a text | UTF-16 | iconv"));
  for (const std::string& text : {"\xFF"s, "\xFFone"s, "o\0n"s, "\0\0\0\0"s, "o\0\0n"s, "one two"s})
    EXPECT_EQ(error_of([&] { without_bom(text, "a text"); }), "");
  EXPECT_THROW(parse_json("{\0}\0"s, "a file"), Error);
}

TEST(TextFile, BytesThatAreNotUtf8AreNamed) {
  const TempFolder dir;
  const std::vector<std::pair<std::string, std::string>> table = {{"\xEF\xBB\xBFtext \u00E9", ""},
                                                                  {"caf\xE9", "3 | UTF-8 | iconv"},
                                                                  {"\xEF\xBB\xBF"
                                                                   "caf\xC3",
                                                                   "6 | UTF-8 | iconv"},
                                                                  {"\x1F\x8B\x08"s, "1 | UTF-8 | gzip"},
                                                                  {"%PDF-1.4\n\xE2", "9 | UTF-8 | PDF"}};
  for (const auto& [bytes, want] : table) {
    dir.put("text", bytes);
    const std::string error = error_of([&] { read_text(dir.path / "text", 1000); });
    EXPECT_EQ(error.empty(), want.empty()) << error;
    EXPECT_TRUE(names(error, want));
  }
  EXPECT_EQ(end_of_utf8("caf\xC3", 0, /*more_follows=*/true, "a text"), 3U) << "the rest may follow";
}

TEST(TextFile, AGitLfsPointerIsNamed) {
  const TempFolder dir;
  dir.put("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n");
  EXPECT_TRUE(names(error_of([&] { read_file(dir.path / "pointer", 1000); }),
                    (dir.path / "pointer").string() + " | git lfs pull"));
  EXPECT_NO_THROW(refuse_lfs_pointer("a version https://git-lfs", "a file"));
}

TEST(TextFile, CountGrammar) {
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(0, "token"), "0 tokens");
  EXPECT_EQ(counted(size_t{2}, "token"), "2 tokens");
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(counted(3, "entry", "entries"), "3 entries");
}

TEST(TextFile, PrintedTextIsOneLineOfUtf8) {
  EXPECT_EQ(printable("a\x1b[2J\nb\x7F"), "a [2J b ");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            " 2J");  // U+009B does the same
  EXPECT_EQ(printable("\xFFh\xC3\xA4\xC3"), "\uFFFDh\u00E4\uFFFD");
}

}  // namespace
}  // namespace lariat::test
