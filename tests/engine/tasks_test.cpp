#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/eval/tasks/random.h"
#include "engine/eval/tasks/ruler.h"
#include "engine/eval/tasks/words.h"
#include "models/text/tokenizer.h"
#include "tests/sha256.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

// Printed by random.Random(42) of CPython 3.11, one call after the other.
TEST(PythonRandomTest, DrawsAsPython) {
  PythonRandom random(42);
  EXPECT_EQ(random.sample(20, 4), (std::vector<size_t>{3, 0, 8, 7}));
  EXPECT_EQ(random.sample(100000, 5), (std::vector<size_t>{29256, 18289, 96530, 13434, 88696}));
  EXPECT_EQ(random.sample(84, 6), (std::vector<size_t>{69, 11, 75, 54, 4, 3}));
  EXPECT_EQ(random.sample(85, 6), (std::vector<size_t>{11, 27, 29, 64, 77, 3}));
  std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7};
  random.shuffle(items);
  EXPECT_EQ(items, (std::vector{2, 1, 0, 7, 4, 6, 5, 3}));
  EXPECT_EQ(random.letters('a', 12), "pvausieyiccw");
  EXPECT_EQ(random.uuid(), "0b1f9163-ce9f-457f-83b7-a3a69a8dca03");
  EXPECT_EQ(1000000 + random.below(9000000), 8707870U);
  EXPECT_EQ(random.real(), 0.53622809145470074);
  EXPECT_EQ(random.bits(1), 1U);
  EXPECT_EQ(random.bits(32), 3961228449U);
  EXPECT_EQ(PythonRandom(0).bits(32), 3626764237U);
  EXPECT_EQ(PythonRandom(4294967295U).bits(32), 2728839433U);
}

// numpy.random.seed(42) of numpy 2.4.6.
TEST(PythonRandomTest, DrawsAsNumpy) {
  std::mt19937 engine(42);
  for (const int64_t want : {25795, 10860, 86820, 64886, 16265, 92386})
    EXPECT_EQ(numpy_randint(engine, 10000, 99999), want);
}

// Positions in sorted(set(f"{adjective}-{noun}")), with the words around a pair of adjectives that
// interleave.
TEST(WordPairsTest, AreSortedAsByPython) {
  WordPairs pairs;
  ASSERT_EQ(pairs.size(), 6171620U);
  EXPECT_EQ(pairs.at(0), "Early-ATM");
  EXPECT_EQ(pairs.at(612613), "blue-eyebrows");
  EXPECT_EQ(pairs.at(612614), "blue-eyed-ATM");
  EXPECT_EQ(pairs.at(619396), "blue-eyeglasses");
  EXPECT_EQ(pairs.at(6171619), "zonked-zucchini");
  EXPECT_EQ(sorted_words({kNouns, kAdjectives, kVerbs}).size(), 8166U);
}

std::function<int64_t(std::string_view)> counter(const std::filesystem::path& folder) {
  return [tokenizer = Tokenizer::load(folder)](std::string_view text) {
    return std::ssize(tokenizer.encode(text, false));
  };
}

// Rows of RULER's scripts (tests/golden/README.md).
class RulerRowsTest : public testing::TestWithParam<const char*> {};

TEST_P(RulerRowsTest, EqualThoseOfItsScripts) {
  const nlohmann::json golden =
      nlohmann::json::parse(slurp(source_dir() / "tests" / "golden" / "ruler" / GetParam()));
  std::string name = golden.at("tokenizer");
  const bool shared = name.starts_with("shared/");
  const std::filesystem::path folder = shared ? shared_dir() / name.substr(7) : source_dir() / name;
  LARIAT_NEEDS(folder);
  const auto tokens = counter(folder);
  int64_t redrawn = 0, in_full = 0;
  for (const auto& file : golden.at("files")) {
    const std::string task = file.at("task");
    SCOPED_TRACE(fmt::format("{} {}", task, file.at("length").get<int64_t>()));
    const auto next = ruler_rows({task, file.at("length"), golden.at("seed"), tokens});
    bool first = true;
    for (const auto& want : file.at("rows")) {
      const std::string line = next();
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(sha256(row.at("input")), want.at("input"));
      EXPECT_EQ(sha256(row.at("answer_prefix")), want.at("answer_prefix"));
      EXPECT_EQ(sha256(line), want.at("line"));
      if (first && file.contains("first")) {
        EXPECT_EQ(line, file.at("first"));
        ++in_full;
      }
      first = false;
    }
    redrawn += file.at("retries").get<int64_t>();
  }
  EXPECT_GT(redrawn, 0);  // some rows were too long at first
  EXPECT_TRUE(shared || in_full > 0);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, RulerRowsTest,
                         testing::Values("demo.json", "llama3-mini.json", "qwen2.json", "llama2-hf.json"),
                         [](const auto& param) { return test_name(param.param); });

TEST(RulerRowsTest, RefusesLengthsThatNoRowFits) {
  const auto tokens = counter(source_dir() / "configs" / "demo");
  for (const std::string_view task : {"niah_single_1", "fwe"}) {
    const auto draw = [&] { ruler_rows({task, 200, 42, tokens})(); };
    EXPECT_TRUE(names(error_of(draw), std::string(task) + " | 200"));
  }
  // vt's example of at most 500 tokens, at any length
  const auto mini = counter(source_dir() / "tests" / "golden" / "tokenizers" / "llama3-mini");
  EXPECT_TRUE(names(error_of([&] { ruler_rows({"vt", 8192, 42, mini}); }), "vt | 500"));
}

// A token per blank: a trial of the search has more words. Seed 35 draws a name of vt's example twice, which
// ends RULER's script with an IndexError.
TEST(RulerRowsTest, RefusesWhatTheScriptsCannotDraw) {
  const auto words = [](std::string_view text) { return std::ranges::count(text, ' '); };
  EXPECT_TRUE(names(error_of([&] { ruler_rows({"cwe", 131072, 42, words}); }), "cwe | 8166"));
  EXPECT_TRUE(names(error_of([&] { ruler_rows({"vt", 4096, 35, words}); }), "vt | seed"));
}

}  // namespace
}  // namespace lariat::test
