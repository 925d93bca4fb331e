#include "engine/eval/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

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
  const std::string html = html_report(table_of(kAll, {256, 512, 1024, 4096}, 1.3));
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
  EXPECT_NE(html.find("Passkeys found"), std::string::npos);
  table.passkey.erase({"yarn", 512, 0.5});  // a hole is a dash
  EXPECT_NE(html_report(table), html);
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
