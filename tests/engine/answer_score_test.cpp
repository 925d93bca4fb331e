#include "engine/eval/answer_score.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/test_util.h"

namespace lariat::test {
namespace {

// tools/lab/golden/scores.py: scores of RULER's and RULERv2's own functions, and of difflib; RULER rounds to
// two places.
TEST(AnswerScore, EqualsTheOfficialScorers) {
  std::istringstream lines(slurp(source_dir() / "tests/golden/scores.jsonl"));
  std::map<std::string, int> rows;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    const auto metric = find_metric(row["metric"].get<std::string>());
    ASSERT_TRUE(metric) << line;
    const std::string answer = row["answer"];
    EXPECT_NEAR(100 * score_of(*metric, answer, row["references"]), row["score"].get<double>(), 0.005001)
        << line;
    ++rows[row["metric"]];
  }
  EXPECT_EQ(rows.size(), std::size(kMetrics) - 1);  // passkeys have no official one
  for (const auto& [metric, count] : rows) EXPECT_GE(count, 40) << metric;
}

TEST(AnswerScore, EmptyAnswers) {
  EXPECT_TRUE(is_empty_answer(" \x01\n\t\x1F"));
  EXPECT_FALSE(is_empty_answer(" \x01 0"));
}

TEST(AnswerScore, OneReferenceMakesAllBinary) {
  EXPECT_TRUE(is_binary(Metric::kAll, 1));
  EXPECT_FALSE(is_binary(Metric::kAll, 2));
  EXPECT_TRUE(is_binary(Metric::kPart, 2));
  EXPECT_FALSE(is_binary(Metric::kRuler2All, 1));
}

}  // namespace
}  // namespace lariat::test
