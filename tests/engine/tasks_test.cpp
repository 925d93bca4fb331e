#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

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
    const auto next = task_rows({task, file.at("length"), golden.at("seed"), tokens});
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

// Rows of the form tasks with the demo's tokenizer. The text's sentences are numbered.
class FormRowsTest : public testing::Test {
 protected:
  std::vector<nlohmann::json> rows(const std::string& task, int64_t length, int count = 6) const {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += fmt::format("Now sentence {} \n ends. ", i);
    const auto next = task_rows({task, length, 42, tokens_, text});
    std::vector<nlohmann::json> all;
    while (std::ssize(all) < count) {
      const nlohmann::json row = all.emplace_back(nlohmann::json::parse(next()));
      const int64_t used =
          tokens_(row.at("input").get<std::string>() + row.at("answer_prefix").get<std::string>());
      EXPECT_EQ(row.at("length"), used + row.at("max_new_tokens").get<int64_t>()) << task;
      EXPECT_LE(row.at("length"), length) << task;
      EXPECT_GE(row.at("length"), length / 2) << task;
      EXPECT_TRUE(names(row.at("note").get<std::string>(), "not RULER's rows"));
    }
    EXPECT_NE(all[0].at("input"), all[1].at("input"));
    return all;
  }
  static std::vector<std::string> matches(const std::string& text, const std::string& pattern, int group) {
    std::vector<std::string> found;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
      found.push_back((*at)[group]);
    return found;
  }
  std::function<int64_t(std::string_view)> tokens_ = counter(source_dir() / "configs" / "demo");
};

TEST_F(FormRowsTest, NeedlesStandBetweenSentencesOfTheText) {
  for (const auto& [task, needles, answers, asked] : {std::tuple("essay_single_2", 1, 1, 1),
                                                      {"essay_single_3", 1, 1, 1},
                                                      {"essay_multikey_1", 4, 1, 1},
                                                      {"essay_multivalue", 4, 4, 1},
                                                      {"essay_multiquery", 4, 4, 4}}) {
    SCOPED_TRACE(task);
    for (const nlohmann::json& row : rows(task, 4096)) {
      const std::string input = row.at("input");
      const std::string line = R"(One of the special magic \w+ for ([^:]+) is: ([^ ]+)\.)";
      const auto keys = matches(input, line, 1), values = matches(input, line, 2);
      EXPECT_EQ(std::ssize(keys), needles);
      EXPECT_EQ(row.at("outputs").size(), static_cast<size_t>(answers));
      const std::string question = input.substr(input.rfind('\n'));
      int named = 0;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (question.find(" " + keys[i]) == question.npos) continue;
        ++named;
        EXPECT_EQ(std::ranges::count(row.at("outputs").get<std::vector<std::string>>(), values[i]), 1);
      }
      EXPECT_EQ(named, answers);
      EXPECT_EQ(question.find(" are ") != question.npos, answers > 1);
      EXPECT_EQ(std::ranges::count(question, ','), asked - 1);
      const auto sentences = matches(input, R"(Now sentence (\d+) ends\.)", 1);
      EXPECT_GT(sentences.size(), 50U);
      for (size_t i = 0; i < sentences.size(); ++i) EXPECT_EQ(sentences[i], std::to_string(i));
    }
  }
}

TEST_F(FormRowsTest, FactsLeadToTheAnswer) {
  for (const std::string task : {"facts_1", "facts_2", "facts_3"}) {
    for (const nlohmann::json& row : rows(task, 2048)) {
      const std::string input = row.at("input"), question = input.substr(input.rfind("Question:"));
      std::map<std::string, std::vector<std::string>> trail;  // places of a person or a thing
      std::map<std::string, std::string> holds;
      const std::string fact = R"((\w+) (went to|picked up) the (\w+))";
      const auto subjects = matches(input, fact, 1), verbs = matches(input, fact, 2),
                 objects = matches(input, fact, 3);
      for (size_t i = 0; i < subjects.size(); ++i) {
        if (verbs[i] == "picked up") {
          holds[subjects[i]] = objects[i];
          trail[objects[i]] = {trail[subjects[i]].back()};
          continue;
        }
        trail[subjects[i]].push_back(objects[i]);
        if (holds.contains(subjects[i])) trail[holds[subjects[i]]].push_back(objects[i]);
      }
      const auto& places = trail.at(matches(question, "Where (is|was)( the)? (\\w+)", 3).at(0));
      const bool before = question.find("before") != question.npos;
      EXPECT_EQ(row.at("outputs"), nlohmann::json({places[places.size() - (before ? 2 : 1)]})) << input;
    }
  }
}

TEST_F(FormRowsTest, PairsLinksAndGraphsLeadToTheAnswer) {
  for (const nlohmann::json& row : rows("json_kv", 4096)) {
    const std::string input = row.at("input");
    const size_t begin = input.find('{');
    const auto object = nlohmann::json::parse(input.substr(begin, input.find('}') + 1 - begin));
    const auto keys = matches(input, "\nKey: (.*)\n", 1), values = matches(input, "\nValue: (.*)\n", 1);
    ASSERT_EQ(keys.size(), 3U);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(object.at(keys[i]), values[i]);
    EXPECT_EQ(row.at("outputs"), nlohmann::json::array({object.at(keys[2])}));
  }
  for (const nlohmann::json& row : rows("atc", 1024)) {
    const std::string input = row.at("input");
    std::map<std::string, std::string> parent;
    const std::string is = R"(([A-Z]{6}) is the \w+ of ([A-Z]{6}))",
                      has = R"(([A-Z]{6}) has a \w+ called ([A-Z]{6}))";
    for (size_t i = 0; i < matches(input, is, 1).size(); ++i)
      parent[matches(input, is, 2)[i]] = matches(input, is, 1)[i];
    for (size_t i = 0; i < matches(input, has, 1).size(); ++i)
      parent[matches(input, has, 1)[i]] = matches(input, has, 2)[i];
    std::string name = matches(input, "ancestor of ([A-Z]{6})", 1)[0];
    size_t links = 0;
    for (; parent.contains(name); ++links) name = parent[name];
    EXPECT_EQ(links, parent.size());
    EXPECT_EQ(row.at("outputs"), nlohmann::json::array({name}));
  }
  std::set<std::string> kinds;
  for (const nlohmann::json& row : rows("graphwalks", 4096, 12)) {
    const std::string input = row.at("input"), question = input.substr(input.rfind("\n\n"));
    const auto from = matches(input, "(\\w{10}) -> (\\w{10})", 1),
               to = matches(input, "(\\w{10}) -> (\\w{10})", 2);
    const std::string node = matches(question, "[0-9a-f]{10}", 0).at(0);
    const auto depth = matches(question, "depth (\\d)", 1);
    kinds.insert(depth.empty() ? "parents" : depth[0]);
    std::map<std::string, int> distance = {{node, 0}};
    for (int round = 0; round < 4; ++round) {
      for (size_t i = 0; i < from.size(); ++i)
        if (distance.contains(from[i]) && distance[from[i]] == round) distance.emplace(to[i], round + 1);
    }
    std::set<std::string> expected;
    for (size_t i = 0; depth.empty() && i < from.size(); ++i)
      if (to[i] == node) expected.insert(from[i]);
    for (const auto& [name, at] : distance)
      if (!depth.empty() && at == std::stoi(depth[0])) expected.insert(name);
    const auto outputs = row.at("outputs").get<std::set<std::string>>();
    EXPECT_EQ(outputs, expected);
  }
  EXPECT_EQ(kinds.size(), 4U);
}

TEST(RulerRowsTest, RefusesLengthsThatNoRowFits) {
  const auto tokens = counter(source_dir() / "configs" / "demo");
  for (const std::string_view task : {"niah_single_1", "fwe"}) {
    const auto draw = [&] { task_rows({task, 200, 42, tokens})(); };
    EXPECT_TRUE(names(error_of(draw), std::string(task) + " | 200"));
  }
  // vt's example of at most 500 tokens, at any length
  const auto mini = counter(source_dir() / "tests" / "golden" / "tokenizers" / "llama3-mini");
  EXPECT_TRUE(names(error_of([&] { task_rows({"vt", 8192, 42, mini}); }), "vt | 500"));
}

// A token per blank: a trial of the search has more words. Seed 35 draws a name of vt's example twice, which
// ends RULER's script with an IndexError.
TEST(RulerRowsTest, RefusesWhatTheScriptsCannotDraw) {
  const auto words = [](std::string_view text) { return std::ranges::count(text, ' '); };
  EXPECT_TRUE(names(error_of([&] { task_rows({"cwe", 131072, 42, words}); }), "cwe | 8166"));
  EXPECT_TRUE(names(error_of([&] { task_rows({"vt", 4096, 35, words}); }), "vt | seed"));
}

}  // namespace
}  // namespace lariat::test
