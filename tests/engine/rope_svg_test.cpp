#include "engine/eval/rope_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/rope_config.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

RopeScaling model(RopeType type, int64_t dim, int64_t l0, double theta = 1e4) {
  RopeScaling own;
  own.head_dim = own.rotary_dim = dim;
  own.theta = theta;
  own.original_ctx = own.max_position_embeddings = l0;
  RopeScaling rope = rope_of_type(own, type);
  if (!rope.depends_on_length() && type != RopeType::kDefault) rope.factor = 4.0;
  rope.short_factor.assign(static_cast<size_t>(dim / 2), 1.0);
  rope.long_factor.assign(static_cast<size_t>(dim / 2), 3.0);
  return rope;
}

// Tags open and close in order, and every quote is closed within its tag.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  size_t at = 0;
  while ((at = svg.find('<', at)) != std::string::npos) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_FALSE(names(tag, "<"));
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
}

// Everything is inside the picture: numbers finite, labels and curves between its edges.
void expect_inside(const std::string& svg) {
  EXPECT_FALSE(names(svg, "nan"));
  EXPECT_FALSE(names(svg, "inf"));
  static const std::regex size("width=\"([0-9.]+)\" height=\"([0-9.]+)\"");
  static const std::regex point("(<text x=\"|\\bM|L)(-?[0-9.]+)(?: |\" y=\")(-?[0-9.]+)");
  std::smatch edges;
  ASSERT_TRUE(std::regex_search(svg, edges, size));
  const std::string body = svg.substr(svg.find("</style>"));
  std::map<std::string, int> points;
  for (auto it = std::sregex_iterator(body.begin(), body.end(), point); it != std::sregex_iterator(); ++it) {
    const double x = std::stod((*it)[2]), y = std::stod((*it)[3]);
    EXPECT_TRUE(x >= 0 && x <= std::stod(edges[1]) && y >= 0 && y <= std::stod(edges[2])) << it->str();
    ++points[(*it)[1]];
  }
  EXPECT_GT(points["<text x=\""], 20);
  EXPECT_GT(points["M"], 20);
  EXPECT_GE(points["L"], 100);
}

TEST(RopeSvg, IsWholeForEveryTypeAndShape) {
  for (const char* name : {"default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", "llama3",
                           "longrope", "proportional"}) {
    for (const auto& [dim, l0] : {std::pair<int64_t, int64_t>(8, 512), {128, 8192}, {64, 131072}, {4, 2}}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(dim) + " " + std::to_string(l0));
      const std::string svg = rope_svg(model(*find_rope_type(name), dim, l0), 3.0 * static_cast<double>(l0));
      expect_well_formed(svg);
      expect_inside(svg);
    }
  }
  expect_inside(rope_svg(model(RopeType::kLinear, 2, 4096), 4096));
  for (const double share : {0.1, 0.25, 0.3}) {  // 0.3 of 16 is no even number of dimensions
    RopeScaling rope = model(RopeType::kProportional, 16, 4096);
    rope.partial_rotary_factor = std::max(share, 0.125);
    expect_inside(rope_svg(rope, 4096));
  }
}

TEST(RopeSvg, NamesTheScalingsAndTheChosenOne) {
  const std::string svg = rope_svg(model(RopeType::kYarn, 128, 4096), 4096);
  EXPECT_TRUE(
      names(svg,
            "4 | linear | ntk = dynamic | yarn = dynamic-yarn | llama3 | 4096 | prefers-color-scheme: dark | "
            "Sinusoidal | Learned | none | T5 | ALiBi | RoPE | 100"));
  EXPECT_EQ(svg.find("http", svg.find("xmlns") + 40), std::string::npos) << "self-contained";
  EXPECT_TRUE(names(rope_svg(model(RopeType::kLongRope, 64, 4096), 8192), "longrope"));
}

// Of every method, the cells beneath the diagonal that are seen, in the colour of their distance.
TEST(MethodSvg, IsAMapOfDistances) {
  for (const char* name :
       {"dca/chunk=384/window=128", "string/shift=400/window=9", "sinks/sinks=3/window=500"}) {
    const PositionMethod method = parse_position_method(name, 512, 2048);
    const std::string svg = method_svg(method, 512, 2048);
    expect_well_formed(svg);
    EXPECT_TRUE(names(svg, ">" + std::string(name) + "</text>"));
    std::map<int64_t, std::vector<int>> rows;  // the colour of each cell, or -1
    static const std::regex path("<path class=\"(hot|cold)\" fill-opacity=\"([0-9.]+)\" d=\"([^\"]*)\"/>");
    static const std::regex piece("M([0-9]+) ([0-9]+)h([0-9]+)v1h-([0-9]+)z");
    for (auto p = std::sregex_iterator(svg.begin(), svg.end(), path); p != std::sregex_iterator(); ++p) {
      const int colour = (*p)[1] == "cold" ? 10 : static_cast<int>(std::lround(10 * std::stod((*p)[2]))) - 1;
      const std::string pieces = (*p)[3];
      for (auto m = std::sregex_iterator(pieces.begin(), pieces.end(), piece); m != std::sregex_iterator();
           ++m) {
        auto& row = rows.try_emplace(std::stoll((*m)[2]), 96, -1).first->second;
        EXPECT_EQ((*m)[3], (*m)[4]);
        for (size_t i = 0; i < std::stoul((*m)[3]); ++i) row.at(std::stoul((*m)[1]) + i) = colour;
      }
    }
    ASSERT_EQ(rows.size(), 96U);
    int untrained = 0;
    for (const auto& [row, colours] : rows) {
      for (int64_t column = 0; column < 96; ++column) {
        const int64_t i = (row + 1) * 2048 / 96 - 1, j = column * 2048 / 96;
        const auto distance = j <= i ? method.distance(i, j) : std::nullopt;
        const int expected = distance ? static_cast<int>(std::min(*distance / 512, 1.0) * 10) : -1;
        ASSERT_EQ(colours[static_cast<size_t>(column)], expected) << name << " " << row << " " << column;
        untrained += expected == 10 ? 1 : 0;
      }
    }
    EXPECT_EQ(untrained > 0, name[1] == 't') << "STRING's shift is too small, the others reach any length";
  }
}

TEST(RopeDecay, IsOneAtZeroAndTheBoundByHand) {
  EXPECT_DOUBLE_EQ(rope_decay({1.0, 0.1, 0.01}, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(rotary_score(sinusoidal_frequencies(16), 0.0), 1.0);
  // d = 4: |e^{im}| + |e^{im} + e^{imf}| over 3, the second 2 |cos(m (1 - f) / 2)|.
  EXPECT_NEAR(rope_decay({1.0, 0.01}, 7.0), (1.0 + 2.0 * std::abs(std::cos(7.0 * 0.99 / 2.0))) / 3.0, 1e-15);
  EXPECT_NEAR(rotary_score(sinusoidal_frequencies(2), 3.0), (std::cos(3.0) + std::cos(0.03)) / 2.0, 1e-15);
}

// Numbers of transformers 5.23: T5Attention._relative_position_bucket(-distance, bidirectional=False,
// num_buckets=32, max_distance=128).
TEST(PositionScores, BucketsAreThoseOfT5) {
  const int64_t distances[] = {0,  1,  8,  15, 16, 18,  19,  23,  24,  31,    40,
                               50, 63, 64, 91, 99, 112, 113, 127, 128, 100000};
  const int buckets[] = {0, 1, 8, 15, 16, 16, 17, 18, 19, 21, 23, 24, 26, 26, 29, 30, 30, 31, 31, 31, 31};
  for (size_t i = 0; i < std::size(distances); ++i) EXPECT_EQ(t5_bucket(distances[i]), buckets[i]) << i;
}

TEST(PositionScores, AlibiHalvesByItsSlope) {
  EXPECT_DOUBLE_EQ(alibi_weight(1, 8, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(alibi_weight(1, 8, 2.0), std::exp(-1.0));
  EXPECT_DOUBLE_EQ(alibi_weight(8, 8, 256.0), std::exp(-1.0));
  EXPECT_DOUBLE_EQ(alibi_weight(3, 16, 10.0), std::exp(-10.0 / std::pow(2.0, 1.5)));
}

// q . R(m) k for q = k = (1, 0, 1, 0, ...), the first of each pair: what is left of it, over |q|^2.
TEST(PositionScores, RotationLeavesTheMeanCosine) {
  EXPECT_DOUBLE_EQ(rotary_score({1.0, 0.1, 0.01}, 0.0), 1.0);
  EXPECT_NEAR(rotary_score({1.0, 0.01}, 7.0), (std::cos(7.0) + std::cos(0.07)) / 2.0, 1e-15);
  EXPECT_NEAR(rotary_score({1.0, 0.0}, 7.0), std::cos(7.0), 1e-15) << "of the pairs that rotate";
}

TEST(PositionScores, StripesAreMeansOverTheirDistances) {
  const auto rope = model(RopeType::kYarn, 64, 512);
  const auto inv_freq = rope_frequencies(rope, 2048).inv_freq;
  for (const int64_t tokens : {100, 1000, 10000}) {
    const auto stripes = rotary_stripes(inv_freq, tokens, 100);
    ASSERT_EQ(stripes.size(), 100U);
    for (const int64_t i : {0, 1, 37, 99}) {
      double sum = 0.0;
      for (int64_t m = i * tokens / 100; m < (i + 1) * tokens / 100; ++m)
        sum += rotary_score(inv_freq, static_cast<double>(m));
      EXPECT_NEAR(stripes[static_cast<size_t>(i)], sum / static_cast<double>(tokens / 100), 1e-12)
          << tokens << " " << i;
    }
  }
}

// The stripes of a map cover its half below the diagonal once, and lie beside each other.
TEST(PositionScores, AMapIsCausalAndWhole) {
  const std::string svg = rope_svg(model(RopeType::kDynamicYarn, 64, 512), 2048);
  size_t at = 0;
  int maps = 0;
  for (; (at = svg.find("class=\"map\"", at)) != std::string::npos; ++maps) {
    const size_t end = svg.find("</g>", at);
    int edge = 0;
    for (size_t path = at; (path = svg.find("d=\"M0 ", path)) < end;) {
      std::istringstream numbers(svg.substr(path + 6, 40));
      char letter = 0;
      int from = 0, right = 0, bottom = 0, next_right = 0, left = 0, to = 0;
      numbers >> from >> letter >> right >> bottom >> letter >> next_right >> letter >> left >> to;
      EXPECT_EQ(from, edge);
      EXPECT_TRUE(right == 100 - from && bottom == 100 && next_right == 100 - to && left == 0) << from;
      EXPECT_GT(to, from);
      edge = to;
      path += 6;
    }
    EXPECT_EQ(edge, 100);
    at = end;
  }
  EXPECT_EQ(maps, 3);
  // A dynamic scale is that of each map's length.
  EXPECT_TRUE(names(svg, "1.953 | 19.53"));
}

// The reason why linear interpolation loses short distances: it moves the whole curve by the factor.
TEST(RopeDecay, LinearStretchesTheCurve) {
  const auto rope = model(RopeType::kLinear, 128, 4096);
  for (const double m : {1.0, 10.0, 1000.0}) {
    EXPECT_NEAR(rope_decay(rope_frequencies(rope, 1).inv_freq, 4.0 * m),
                rope_decay(rope_unscaled(rope).inv_freq, m), 1e-9);
  }
}

}  // namespace
}  // namespace lariat::test
