#include "engine/eval/needles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/eval/measure/passkey.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

// RULER's string_match_all: the share of references r with r.lower() in prediction.lower().
TEST(NeedleScoring, HandMadeTranscripts) {
  struct Case {
    NeedleTask task;
    std::vector<std::string> expected;
    std::string answer;
    double recall;
  };
  using enum NeedleTask;
  const std::vector<std::string> key = {"1234"}, number = {"1234567"}, chain = {"ABCDE", "FGHIJ", "KLMNO"};
  const std::vector<std::string> four = {"1234567", "2345678", "3456789", "4567891"};
  const Case cases[] = {
      {kPasskey, key, " 1234.", 1},
      {kPasskey, key, "1234", 1},
      {kPasskey, key, " the number 1234, remember it: 99", 1},
      {kPasskey, key, " 01234.", 1},
      {kPasskey, key, "1234\n5678", 1},
      {kPasskey, key, "a1234b34", 1},
      {kPasskey, key, " 4321.", 0},
      {kPasskey, key, " 12345.", 0},
      {kPasskey, key, " 51234.", 0},
      {kPasskey, key, " 123 4", 0},
      {kPasskey, key, " 7 1234", 0},  // the first integer counts
      {kPasskey, key, " in the grass.", 0},
      {kPasskey, key, "", 0},
      {kPasskey, key, "000", 0},
      {kPasskey, key, " 1,234", 0},
      {kPasskey, key, " 99999999999999999999999999", 0},
      {kMultikey, number, " 1234567.", 1},
      {kMultikey, number, " not 7654321 but 1234567", 1},
      {kMultikey, number, " 7654321.", 0},
      {kMultikey, number, " 123456", 0},
      {kMultikey, number, " 123 4567", 0},
      {kMultikey, number, " 1,234,567", 0},
      {kMultikey, number, " 91234567", 1},  // RULER matches text
      {kMultikey, number, " 12345678", 1},
      {kMultikey, number, "", 0},
      {kMultivalue, four, " 1234567, 2345678, 3456789 and 4567891.", 1},
      {kMultivalue, four, " 4567891, 3456789, 2345678, 1234567", 1},
      {kMultivalue, four, " 1234567, 1234567, 1234567, 1234567", 0.25},
      {kMultivalue, four, " 1234567 and 3456789", 0.5},
      {kMultiquery, four, " amber-otter: 1234567\n odd-canyon: 2345678\n icy-violin: 9999\n 4567891", 0.75},
      {kMultiquery, four, " 12345678", 0.5},  // "1234567" and "2345678" overlap
      {kMultiquery, four, " I do not know.", 0},
      {kTracking, chain, " ABCDE, FGHIJ and KLMNO", 1},
      {kTracking, chain, " abcde, fghij", 2.0 / 3},
      {kTracking, chain, "LET ABCDE = 12345.", 1.0 / 3},
      {kTracking, chain, " ABCD EFGHIJ", 1.0 / 3},
      {kTracking, chain, " AB CDE", 0},
  };
  for (const auto& [task, expected, answer, recall] : cases) {
    const PasskeyTrial trial{answer, expected, found_in(task, answer, expected)};
    EXPECT_DOUBLE_EQ(trial.recall(), recall) << name_of(task) << answer;
    EXPECT_EQ(trial.correct(), recall == 1) << name_of(task) << answer;
  }
  EXPECT_EQ(found_in(kTracking, "fghij, abcde", chain), (std::vector<std::string>{"ABCDE", "FGHIJ"}));
}

TEST(NeedleTasks, HideAndAskForTheNeedles) {
  const NeedleRandom random(7, 4096, 0.5, 3);
  const auto make = [&](NeedleTask task) { return make_needles({task, 4}, 0.5, random); };
  const auto lines_with = [](const Needles& needles, const std::string& text) {
    return std::ranges::count_if(needles.lines,
                                 [&](const auto& line) { return line.text.find(text) != std::string::npos; });
  };
  for (const NeedleTask task : kNeedleTasks) {
    if (task == NeedleTask::kPasskey) continue;
    const Needles needles = make(task);
    const std::string name(name_of(task));
    EXPECT_EQ(needles.lines.size(), task == NeedleTask::kTracking ? 5U : 4U) << name;
    EXPECT_EQ(needles.expected.size(), task == NeedleTask::kMultikey   ? 1U
                                       : task == NeedleTask::kTracking ? 5U
                                                                       : 4U);
    EXPECT_TRUE(std::ranges::is_sorted(needles.lines, {}, &Needles::Line::depth)) << name;
    EXPECT_EQ(std::ranges::count(needles.lines, 0.5, &Needles::Line::depth), 1) << name;
    for (const auto& one : needles.expected) EXPECT_GE(lines_with(needles, one), 1) << one;
    EXPECT_EQ(std::set(needles.expected.begin(), needles.expected.end()).size(), needles.expected.size());
  }
  const Needles one = make(NeedleTask::kMultikey);
  const auto asked = std::ranges::find(one.lines, 0.5, &Needles::Line::depth);
  EXPECT_TRUE(names(asked->text, one.expected[0]));
  const std::string name = asked->text.substr(18, asked->text.find(" is ") - 18);
  EXPECT_TRUE(names(one.question, name));
  EXPECT_EQ(lines_with(one, name), 1);
  const Needles chain = make(NeedleTask::kTracking);
  for (size_t i = 0; i < 5; ++i) {
    const std::string begin = "LET " + chain.expected[i] + " = ";
    ASSERT_TRUE(chain.lines[i].text.starts_with(begin)) << chain.lines[i].text;
    const std::string value = chain.lines[i].text.substr(begin.size());
    EXPECT_TRUE(i > 0 ? value == chain.expected[i - 1] + "."
                      : chain.question.find(value.substr(0, 5)) != std::string::npos)
        << chain.lines[i].text;
  }
}

TEST(NeedleTasks, SeedLengthDepthAndTrialDetermineAPrompt) {
  for (const NeedleTask task : {NeedleTask::kPasskey, NeedleTask::kMultiquery}) {
    PasskeyOptions options{.needles = {.task = task}};
    const auto expected = [&](int64_t length, double depth, int64_t trial) {
      return needles_of(options, length, depth, trial).expected;
    };
    std::set<std::vector<std::string>> all = {expected(512, 0, 0), expected(512, 0, 1), expected(512, 0.5, 0),
                                              expected(1024, 0, 0)};
    EXPECT_EQ(expected(512, 0, 0), expected(512, 0, 0));
    options.seed = 1;
    all.insert(expected(512, 0, 0));
    EXPECT_EQ(all.size(), 5U) << name_of(task);
  }
}

TEST(NeedleTasks, PasskeysAreUniform) {
  std::set<int64_t> keys;
  double sum = 0;
  for (int64_t trial = 0; trial < 2000; ++trial) {
    const int64_t key = std::stoll(needles_of({.seed = 3}, 1024, 0.5, trial).expected.at(0));
    EXPECT_TRUE(key >= 1 && key <= 50000) << key;
    keys.insert(key);
    sum += static_cast<double>(key);
  }
  EXPECT_GT(keys.size(), 1900U);
  EXPECT_NEAR(sum / 2000, 25000, 1000);
}

}  // namespace
}  // namespace lariat::test
