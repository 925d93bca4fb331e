#include "engine/eval/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "engine/eval/chart.h"

namespace lariat {
namespace {

SweepTable table_of(const std::vector<std::string>& scalings, const std::vector<int64_t>& lengths,
                    double growth) {
  SweepTable table;
  table.model = "a <model> & \"more\"";
  table.text = "text.txt";
  table.original_ctx = 512;
  table.scalings = scalings;
  table.lengths = lengths;
  table.depths = {0, 0.5, 1};
  table.notes = {"How it was measured."};
  double ppl = 8;
  for (const auto& scaling : scalings) {
    for (const int64_t length : lengths) {
      table.perplexity[{scaling, length}] = {ppl, 0.1, 1000};
      ppl *= growth;
      for (const double depth : table.depths) table.passkey[{scaling, length, depth}] = {5, 3};
      table.speed[{scaling, length}] = {12345, 678, 1 << 20};
    }
  }
  return table;
}

// Two buckets before 512 and two behind, whose perplexities are given.
void add_growing(SweepTable& table, const std::string& column, const std::string& label, double before,
                 double after) {
  GrowingValue value{label, {}};
  for (int64_t i = 0; i < 4; ++i)
    value.positions.push_back({256 * i, 256 * (i + 1), 100, 100 * std::log(i < 2 ? before : after)});
  table.growing_columns.push_back(column);
  table.growing[column] = value;
}

const std::vector<std::string> kAll = {"none", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn"};

std::vector<double> values_of(const std::string& svg, const std::string& pattern) {
  std::vector<double> values;
  const std::regex regex(pattern);
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), regex); it != std::sregex_iterator(); ++it) {
    values.push_back(std::stod((*it)[1]));
  }
  return values;
}

TEST(Report, StandsAlone) {
  const std::string html = html_report(table_of(kAll, {512, 1024}, 1.1));
  for (const char* foreign : {"<script", "http:", "https:", "<link", "@import", "url(", "<img"}) {
    EXPECT_EQ(html.find(foreign), std::string::npos) << foreign;
  }
  EXPECT_NE(html.find("RoPE scalings on a &lt;model&gt; &amp; &quot;more&quot;"), std::string::npos);
  EXPECT_EQ(html.find("<model>"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(html.find("@media print"), std::string::npos);
  EXPECT_NE(html.find("How it was measured."), std::string::npos);
}

// Every element that is opened is closed, in order.
TEST(Report, IsWellFormed) {
  SweepTable table = table_of(kAll, {256, 512, 1024, 4096}, 1.3);
  add_growing(table, "<dynamic> stale", "<dynamic> stale", 8, 80);
  const std::string html = html_report(table);
  const std::string body = html.substr(html.find("<body>"));
  std::vector<std::string> open = {"html"};
  const std::regex tag("<(/?)([a-z0-9]+)([^>]*)>");
  for (auto it = std::sregex_iterator(body.begin(), body.end(), tag); it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[2], rest = (*it)[3];
    if (!rest.empty() && rest.back() == '/') continue;
    if ((*it)[1].length() == 0) {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(Report, LeavesOutWhatWasNotMeasured) {
  SweepTable table = table_of(kAll, {512, 1024}, 1.1);
  table.perplexity.clear();
  table.speed.clear();
  const std::string html = html_report(table);
  EXPECT_EQ(html.find("Perplexity by context length"), std::string::npos);
  EXPECT_EQ(html.find("Speed and memory"), std::string::npos);
  EXPECT_EQ(html.find("A context that grows"), std::string::npos);
  EXPECT_NE(html.find("Passkeys found"), std::string::npos);
  table.passkey.erase({"yarn", 512, 0.5});  // a hole is a dash
  EXPECT_NE(html_report(table), html);
}

SweepTable grown() {
  SweepTable table = table_of({"none", "yarn", "dynamic"}, {512, 1024}, 1.1);
  add_growing(table, "none", "none", 8, 404);
  add_growing(table, "yarn", "yarn ×2", 8.4, 8.8);
  add_growing(table, "dynamic", "dynamic", 8, 9.2);
  add_growing(table, "dynamic stale", "dynamic stale", 8, 84);
  return table;
}

TEST(Report, AGrowingContextHasItsTableAndSentences) {
  SweepTable table = grown();
  const auto ranges = growing_ranges(table);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].name(), "up to 512");
  EXPECT_EQ(ranges[1].name(), "512–1024");
  EXPECT_NEAR(growing_perplexity(table, "dynamic stale", {0, 1024}).value(), std::sqrt(8.0 * 84), 1e-9);
  EXPECT_EQ(best_growing(table, ranges[0]), (std::vector<std::string>{"none", "dynamic", "dynamic stale"}));
  EXPECT_EQ(best_growing(table, ranges[1]), (std::vector<std::string>{"yarn"}));
  const auto sentences = growing_conclusions(table);
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_EQ(sentences[0],
            "While the context grows from 512 to 1024 tokens, perplexity is under dynamic 1.15 times that of "
            "the positions before (10.5 with stale keys) and under the unscaled model 50.5.");
  EXPECT_EQ(sentences[1],
            "Before position 512 perplexity is 8.00 under the unscaled model; yarn ×2 5.0 % more.");
  const std::string html = html_report(table);
  EXPECT_NE(html.find("A context that grows"), std::string::npos);
  EXPECT_NE(html.find("yarn ×2</th><td>8.40</td><td class=\"best\">8.80</td>"), std::string::npos);
  EXPECT_NE(html.find(sentences[0]), std::string::npos);

  table.growing["dynamic stale"].positions[3].nll = std::nan("");  // a hole
  EXPECT_FALSE(growing_perplexity(table, "dynamic stale", ranges[1]));
  EXPECT_EQ(growing_conclusions(table).size(), 1U);
  EXPECT_EQ(html_report(table).find("nan"), std::string::npos);
  for (auto& [column, value] : table.growing) value.positions.clear();
  EXPECT_EQ(html_report(table).find("A context that grows"), std::string::npos);
}

// Stale keys are dashed in the colour of their scaling, and a narrow picture names them shortly.
TEST(Report, AGrowingContextIsDrawn) {
  const std::string wide = growing_chart(grown(), 980, 420), narrow = growing_chart(grown(), 360, 340);
  for (const auto& svg : {wide, narrow}) {
    auto labels = values_of(svg, "y=\"([0-9.]+)\" text-anchor=\"start\" class=\"series\"");
    ASSERT_EQ(labels.size(), 4U);
    std::sort(labels.begin(), labels.end());
    for (size_t i = 1; i < labels.size(); ++i) EXPECT_GE(labels[i] - labels[i - 1], 16.5);
    EXPECT_NE(svg.find("<g class=\"c3 dashed\"><title>dynamic stale"), std::string::npos);
    EXPECT_NE(svg.find("<g class=\"c3\"><title>dynamic\n"), std::string::npos);
    EXPECT_NE(svg.find("trained length"), std::string::npos);
  }
  EXPECT_NE(wide.find(">dynamic stale</text>"), std::string::npos);
  EXPECT_NE(narrow.find(">stale</text>"), std::string::npos);
}

class ChartTest : public testing::TestWithParam<std::tuple<double, int>> {};

// Labels never lie on each other or outside, whatever the values: equal ones, exploding ones.
TEST_P(ChartTest, LabelsKeepTheirDistance) {
  const auto [growth, width] = GetParam();
  const int height = 340;
  const std::string svg =
      perplexity_chart(table_of(kAll, {256, 512, 640, 700, 768, 1024, 131072}, growth), width, height);
  auto labels = values_of(svg, "y=\"([0-9.]+)\" text-anchor=\"start\" class=\"series\"");
  ASSERT_EQ(labels.size(), kAll.size());
  std::sort(labels.begin(), labels.end());
  for (size_t i = 1; i < labels.size(); ++i) EXPECT_GE(labels[i] - labels[i - 1], 16.5);
  EXPECT_GE(labels.front(), 20);
  EXPECT_LE(labels.back(), height - 30);
  for (const double y : values_of(svg, "cy=\"([0-9.]+)\"")) {
    EXPECT_GE(y, 30);
    EXPECT_LE(y, height - 40);
  }
  const auto ticks = values_of(svg, "y=\"([0-9.]+)\" text-anchor=\"end\" class=\"tick\"");
  EXPECT_GE(ticks.size(), 2U) << svg;
  EXPECT_LE(ticks.size(), 10U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Growths, ChartTest,
                         testing::Combine(testing::Values(1.0, 1.0001, 1.02, 1.1, 1.5, 3.0, 10.0),
                                          testing::Values(360, 980)));

TEST(Report, ChartsOfOneLengthOrNothingAreDrawn) {
  EXPECT_NE(perplexity_chart(table_of({"yarn"}, {512}, 1.0), 360, 340).find("<circle"), std::string::npos);
  SweepTable broken = table_of(kAll, {512, 1024}, 1.1);
  broken.perplexity[{"none", 1024}].standard_error = std::nan("");
  EXPECT_EQ(html_report(broken).find("\"nan"), std::string::npos);
}

SweepTable hand_made() {
  SweepTable table;
  table.model = "m";
  table.original_ctx = 100;
  table.lengths = {100, 200, 400};
  table.depths = {0, 1};
  table.scalings = {"none", "ntk", "yarn"};
  const double ppl[3][3] = {{5, 50, 500}, {5, 7, 12}, {5.01, 6, 6.5}};
  const int64_t keys[3][3] = {{4, 0, 0}, {4, 3, 0}, {4, 4, 0}};
  for (size_t s = 0; s < 3; ++s) {
    for (size_t l = 0; l < 3; ++l) {
      table.perplexity[{table.scalings[s], table.lengths[l]}] = {ppl[s][l], 0.1, 1000};
      table.passkey[{table.scalings[s], table.lengths[l], 0}] = {4, keys[s][l]};
    }
  }
  return table;
}

TEST(Conclusions, SayWhoWonWhere) {
  const auto sentences = conclusions(hand_made());
  ASSERT_EQ(sentences.size(), 7U);
  EXPECT_EQ(sentences[0], "At 100 tokens every scaling reads alike (perplexity 5.00).");
  EXPECT_EQ(sentences[1],
            "At 200 tokens yarn has the lowest perplexity, 6.00; the unscaled model is worst with 50.0.");
  EXPECT_EQ(sentences[3], "At 100 tokens every scaling finds 100 % of the passkeys.");
  EXPECT_EQ(sentences[4], "At 200 tokens yarn finds the most passkeys, 100 %; the unscaled model finds 0 %.");
  EXPECT_EQ(sentences[5], "At 400 tokens no passkey is found.");
  EXPECT_EQ(sentences[6],
            "Beyond the original 100 tokens, yarn wins: lowest perplexity at 2 of 2 lengths, most passkeys "
            "at the one length measured.");
}

TEST(Conclusions, OfLittleAreShortOrNone) {
  SweepTable table = hand_made();
  table.scalings = {"yarn"};
  EXPECT_TRUE(conclusions(table).empty());
  table = hand_made();
  table.passkey.clear();
  EXPECT_EQ(conclusions(table).back(), "Beyond the original 100 tokens, yarn reads best at 2 of 2 lengths.");
}

TEST(Report, NumbersAreShort) {
  EXPECT_EQ(compact(8.9273), "8.93");
  EXPECT_EQ(compact(44.14), "44.1");
  EXPECT_EQ(compact(5356.4), "5356");
  EXPECT_EQ(compact(2.5e7), "2.5e+07");
  EXPECT_EQ(joined({"a"}), "a");
  EXPECT_EQ(joined({"a", "b", "c"}), "a, b and c");
}

}  // namespace
}  // namespace lariat
