#include <regex>

#include "engine/eval/render/sweep_svg.h"
#include "tests/engine/verdict_fixture.h"

namespace lariat::test {
namespace {

// Ranges lie at bucket ends. Curves are ratios to a base column, cut at the edge.
TEST_F(Verdicts, AViewHasRangesAndRatios) {
  log_.plan.lengths = {100, 400};
  add_grown("none", 3);
  add_grown("yarn", 0.1);
  add_grown("ntk", 0);
  log_.view = {"ntk", {{110, 200}, {200, 390}, {5, 6}}};
  const SweepTable table = tabulate(log_);
  const auto ranges = growing_ranges(table);
  ASSERT_EQ(ranges.size(), 2U);  // the third has no bucket
  EXPECT_EQ(ranges[0].name() + " " + ranges[1].name(), "100–200 200–400");
  EXPECT_EQ(differences(table).size(), 2U * 3U);
  const auto pictures = sweep_pictures(table);
  const auto ratio = std::ranges::find(pictures, "growing-ratio", &SweepPicture::name);
  ASSERT_NE(ratio, pictures.end());
  EXPECT_FALSE(holds(ratio->wide, "<title>ntk\n"));
  std::smatch curve;
  ASSERT_TRUE(std::regex_search(ratio->wide, curve,
                                std::regex("<title>yarn(\n[0-9.]+: [0-9.]+)+\n387.5: ([0-9.]+)")));
  EXPECT_NEAR(std::stod(curve[2]), std::exp(0.1), 0.25);
  EXPECT_TRUE(holds(ratio->wide, "<title>none\n"));
  // 20 times the base: the line ends at the frame, in an arrow with the value.
  const auto line_of = [&](const std::string& column) {
    const std::string from = ratio->wide.substr(ratio->wide.find("<title>" + column + "\n"));
    return from.substr(0, from.find("</g>"));
  };
  EXPECT_FALSE(holds(line_of("yarn"), "class=\"arrow\""));
  EXPECT_TRUE(holds(line_of("none"), "class=\"arrow\""));
  const std::string none = line_of("none");
  ASSERT_TRUE(std::regex_search(none, curve, std::regex("<text[^>]*>([0-9.]+)</text>")));
  EXPECT_NEAR(std::stod(curve[1]), std::exp(3), 5);
  EXPECT_FALSE(holds(ratio->wide, "nan"));
  log_.view.ranges = {{0, 100}, {100, 200}, {100, 390}};
  EXPECT_EQ(growing_ranges(tabulate(log_)).front().name(), "up to 100");
  EXPECT_EQ(sentences().size(), 3U) << "the ranges replace the default ones";
}

TEST_F(Verdicts, CompareGrowingContextsAndStaleKeys) {
  add_grown("none", 3);
  add_grown("dynamic", 0.05, 0.02);
  add_grown("dynamic stale", 1);
  add_grown("yarn", 0, 0.02);
  EXPECT_TRUE(said("100 | 400 | yarn | dynamic") && said("yarn | dynamic | 5"));
  EXPECT_TRUE(said("100 | dynamic | 2"));
  EXPECT_EQ(sentences().size(), 3U);
  const auto ranges = growing_ranges(tabulate(log_));
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[1].name(), "100–200");
  EXPECT_EQ(by_growing(tabulate(log_), ranges[1]).best, std::vector<Column>{"yarn"});
  loss_in(log_.records[2]).positions[8].loss = NAN;
  EXPECT_TRUE(growing_sum(tabulate(log_), "dynamic stale", ranges[1]));
  EXPECT_FALSE(growing_sum(tabulate(log_), "dynamic stale", ranges[2]));
  EXPECT_EQ(sentences().size(), 2U) << "stale keys have no counterpart";
}

TEST_F(Verdicts, SumsOfAGrowingContextEndAtBuckets) {
  add_grown("none", 0);
  auto& grown = std::get<Growing>(log_.records[0].value);
  const auto sum = [&](int64_t from, int64_t to) { return growing_sum(tabulate(log_), "none", {from, to}); };
  const auto& first = grown.positions.front();
  EXPECT_NEAR(sum(0, 25)->mean_error(), first.error, 1e-12);
  EXPECT_EQ(sum(100, 125)->tokens, 25);
  EXPECT_EQ(sum(0, 400)->tokens, 400);
  for (const auto& [from, to] : {std::pair(0, 110), std::pair(110, 200), std::pair(100, 190)})
    EXPECT_FALSE(sum(from, to)) << from << " " << to;
  grown.positions[1] = {25, 50, 0};
  grown.positions[2].tokens = 1;
  EXPECT_EQ(sum(0, 100)->tokens, 51);
  for (const double loss : {-800.0, -0.01, 400.0}) {
    grown.positions[2].loss = loss;
    EXPECT_EQ(sum(50, 75).has_value(), loss == -0.01) << loss;
  }
  const auto blocks = [&](std::optional<int64_t> text_tokens, std::optional<int64_t> holds) {
    grown.text_tokens = text_tokens;
    grown.holds = holds;
    return tabulate(log_).growing.at("none").blocks.size();
  };
  EXPECT_EQ(blocks(400, 1), 400U);
  for (const auto& [text_tokens, holds] :
       std::vector<std::pair<std::optional<int64_t>, std::optional<int64_t>>>{{399, 1}, {{}, 1}, {400, {}}})
    EXPECT_EQ(blocks(text_tokens, holds), 0U);
  grown.positions.clear();
  EXPECT_TRUE(growing_ranges(tabulate(log_)).empty());
  log_.plan.lengths.push_back(800);
  log_.plan.growing.measured = false;
  EXPECT_TRUE(tabulate(log_).growing.empty() && tabulate(log_).growing_columns.empty());
}

TEST_F(Verdicts, StaleKeysOfAGrowingContextMayWin) {
  log_.plan.original_ctx = 200;
  add_grown("dynamic", 0.5, 0.001);
  add_grown("dynamic stale", 0, 0.001);
  loss_in(log_.records[1]).positions[0].loss = NAN;
  EXPECT_TRUE(said("200 | dynamic | 39 | less"));
  log_.records.clear();
  log_.plan.growing.columns.clear();
  for (const char* column : {"dynamic", "dynamic stale"}) add_grown(column, 0);
  EXPECT_FALSE(holds(Json(sentences()).dump(), "%"));
  log_.records.erase(log_.records.begin());
  EXPECT_TRUE(sentences().empty()) << Json(sentences());
}

// The text has two contexts and 37 blocks, one of them in both. A block counts if the range holds all its
// tokens.
TEST_F(Verdicts, BlocksOfAGrowingContextCountWithinTheRange) {
  constexpr int64_t kHolds = 399, kText = 2 * kHolds, kBlocks = 37;
  for (const PositionRange& range :
       {PositionRange{108, 400}, PositionRange{1, 216}, PositionRange{0, 1000}}) {
    SCOPED_TRACE(range.name());
    SweepTable table;
    table.lengths = {400};
    table.growing_columns = {"none", "yarn"};
    for (const auto& column : table.growing_columns) {
      PositionBucket bucket{{}, range.from, range.to};
      for (int i = 0; i < 100; ++i) bucket.add(column == "none" ? 1.05 : 1.0);
      table.growing[column] = {column.name(), {bucket}, std::vector<double>(kBlocks, 20), kText, kHolds};
    }
    auto& blocks = table.growing["none"].blocks;
    const auto shown = [&] {
      table.shown_p = largest_shown_p(table);
      return !by_growing(table, range).best.empty();
    };
    for (int64_t i = 0; i < kBlocks; ++i) {
      const int64_t first = kText * i / kBlocks, last = kText * (i + 1) / kBlocks - 1;
      bool counts = first / kHolds == last / kHolds;
      for (const int64_t token : {first, last}) {
        const int64_t position = token % kHolds + 1;
        counts = counts && position >= range.from && position < range.to;
      }
      blocks[static_cast<size_t>(i)] += 1000;
      EXPECT_EQ(shown(), !counts) << i;
      blocks[static_cast<size_t>(i)] -= 1000;
    }
    // 36 blocks of 798 / 37 tokens: spread / sqrt(35) / (798 / 37).
    const auto shown_with = [&](double spread) {
      for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = 20 + (i % 2 == 0 ? spread : -spread);
      return shown();
    };
    EXPECT_TRUE(shown_with(range.to == 1000 ? 2.2 : 0));
    EXPECT_FALSE(shown_with(2.8));
  }
}

}  // namespace
}  // namespace lariat::test
