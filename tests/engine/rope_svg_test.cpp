#include "engine/eval/render/rope_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "models/positions/parse_position_method.h"
#include "models/spec/rope_config.h"
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

// Tags nest; every quote closes within its tag.
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

// Numbers are finite; labels and curves are inside.
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

TEST(RopeSvg, IsWellFormedForEveryTypeAndShape) {
  for (const char* name : {"default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", "llama3",
                           "longrope", "proportional", "yarn-radix", "dynamic-yarn-radix"}) {
    for (const auto& [dim, l0] : {std::pair<int64_t, int64_t>(8, 512), {128, 8192}, {64, 131072}, {4, 2}}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(dim) + " " + std::to_string(l0));
      const std::string svg = rope_svg(model(*find_rope_type(name), dim, l0), 3.0 * static_cast<double>(l0));
      expect_well_formed(svg);
      expect_inside(svg);
    }
  }
  expect_inside(rope_svg(model(RopeType::kLinear, 2, 4096), 4096));
  for (const double share : {0.1, 0.25, 0.3}) {  // 0.3 of 16 is not even
    RopeScaling rope = model(RopeType::kProportional, 16, 4096);
    rope.partial_rotary_factor = std::max(share, 0.125);
    expect_inside(rope_svg(rope, 4096));
  }
}

TEST(RopeSvg, NamesTheScalingsAndTheChosenOne) {
  const std::string svg = rope_svg(model(RopeType::kYarn, 128, 4096), 4096);
  EXPECT_TRUE(names(
      svg, "4 | linear | ntk = dynamic | yarn = dynamic-yarn | llama3 | 4096 | prefers-color-scheme: dark"));
  EXPECT_EQ(svg.find("http", svg.find("xmlns") + 40), std::string::npos) << "self-contained";
  EXPECT_TRUE(names(rope_svg(model(RopeType::kLongRope, 64, 4096), 8192), "longrope"));
  EXPECT_TRUE(names(rope_svg(model(RopeType::kYarn, 64, 4096), 8192), "attention factor 1.139 | 32 turns"));
  EXPECT_FALSE(names(rope_svg(model(RopeType::kLinear, 64, 4096), 8192), "turns"));
}

TEST(RopeDecay, IsOneAtZeroAndMatchesTheFormula) {
  EXPECT_DOUBLE_EQ(rope_decay({1.0, 0.1, 0.01}, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(sinusoidal_score(sinusoidal_frequencies(16), 0.0), 1.0);
  // d = 4: |e^{im}| + |e^{im} + e^{imf}| over 3, the second 2 |cos(m (1 - f) / 2)|.
  EXPECT_NEAR(rope_decay({1.0, 0.01}, 7.0), (1.0 + 2.0 * std::abs(std::cos(7.0 * 0.99 / 2.0))) / 3.0, 1e-15);
  EXPECT_NEAR(sinusoidal_score(sinusoidal_frequencies(2), 3.0), (std::cos(3.0) + std::cos(0.03)) / 2.0,
              1e-15);
}

// Linear interpolation stretches the curve and loses short distances.
TEST(RopeDecay, LinearStretchesTheCurve) {
  const auto rope = model(RopeType::kLinear, 128, 4096);
  for (const double m : {1.0, 10.0, 1000.0}) {
    EXPECT_NEAR(rope_decay(rope_frequencies(rope, 1).inv_freq, 4.0 * m),
                rope_decay(rope_unscaled(rope).inv_freq, m), 1e-9);
  }
}

TEST(RopeSvg, DrawsThePositionMethods) {
  for (const char* name :
       {"dca", "string", "sinks", "self-extend", "rerope", "lm-infinite", "jet-long", "jet-long-freq"}) {
    const std::string svg = rope_svg(model(RopeType::kDefault, 64, 4096), 16384, RopePanels::kAll,
                                     parse_position_method(name, 4096, 16384));
    expect_well_formed(svg);
    expect_inside(svg);
    EXPECT_TRUE(names(svg, "Distances under " + std::string(name)));
  }
}

}  // namespace
}  // namespace lariat::test
