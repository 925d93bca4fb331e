#include "engine/eval/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

#include "engine/eval/render/report.h"
#include "engine/eval/render/results_csv.h"
#include "engine/eval/render/sweep_svg.h"
#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

// A model trained at 100 tokens; texts of 640 tokens share their hard parts.
class Verdicts : public testing::Test {
 protected:
  Verdicts() {
    log_.plan.original_ctx = 100;
    log_.plan.passkey.depths = {0, 1};
    log_.plan.passkey.trials = 10;
    log_.plan.speed.measured = false;
    std::mt19937 random(3);
    std::exponential_distribution<float> hardness(0.5F);
    for (int i = 0; i < kTokens; ++i) text_.push_back(hardness(random));
  }

  std::vector<float> losses(double above, double noise = 0.2) {
    std::normal_distribution<double> own(above, noise);
    std::vector<float> all;
    for (const float hard : text_) all.push_back(hard + static_cast<float>(own(random_)));
    return all;
  }
  static LossSum sum_of(const std::vector<float>& losses) {
    LossSum sum;
    for (const float loss : losses) sum.add(static_cast<double>(loss));
    return sum;
  }
  void add_losses(const char* scaling, int64_t length, const std::vector<float>& of) {
    const LossSum sum = sum_of(of);
    add_record(log_, "perplexity", scaling, length,
               {{"tokens", sum.tokens},
                {"nll", sum.nll},
                {"ppl", sum.ppl()},
                {"stderr", sum.standard_error()},
                {"blocks", block_sums(of)}});
  }
  // A context of 400; the last three quarters are `above`.
  void add_grown(const char* column, double above, double noise = 0.2) {
    std::vector<float> all = losses(0, noise);
    all.resize(400);
    std::vector<PositionBucket> buckets;
    for (int64_t i = 0; i < 400; ++i) {
      if (i >= 100) all[static_cast<size_t>(i)] += static_cast<float>(above);
      if (i % 25 == 0) buckets.push_back({{}, i, i + 25});
      buckets.back().add(static_cast<double>(all[static_cast<size_t>(i)]));
    }
    add_growing(log_, column, 400,
                {{"text_tokens", 400},
                 {"holds", 400},
                 {"positions", losses_of(buckets)},
                 {"blocks", block_sums(all)}},
                512);
  }
  void add_found(const char* scaling, int64_t length, double share, int64_t trials = 10) {
    for (const double depth : {0.0, 1.0}) {
      const auto found = static_cast<int64_t>(std::lround(share * static_cast<double>(trials)));
      add_record(log_, "passkey", scaling, length,
                 {{"depth", depth}, {"trials", trials}, {"correct", found}});
    }
  }
  std::vector<std::string> sentences() const { return conclusions(tabulate(log_)); }
  std::string last() const { return sentences().empty() ? "" : sentences().back(); }
  testing::AssertionResult said(const std::string& words) const {
    for (const auto& sentence : sentences()) {
      if (names(sentence, words)) return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << words << " is not in " << Json(sentences()).dump(1);
  }
  bool none_wins() const { return !names(last(), "none") && !names(last(), "ntk") && !names(last(), "yarn"); }

  static constexpr int kTokens = 640;
  std::vector<float> text_;
  std::mt19937 random_{11};
  Measurements log_ = empty_log({"none", "ntk", "yarn"}, {100, 200, 400});
};

TEST_F(Verdicts, NameAWinnerWithDifferenceAndError) {
  const auto same = losses(0);
  for (const char* scaling : {"none", "ntk", "yarn"}) add_losses(scaling, 100, same);
  add_losses("none", 200, losses(1));
  add_losses("ntk", 200, losses(0.1));
  add_losses("yarn", 200, losses(0));
  EXPECT_TRUE(by_perplexity(tabulate(log_), 100).best.empty() && said("100"));
  const Standing standing = by_perplexity(tabulate(log_), 200);
  EXPECT_EQ(standing.best, std::vector<Column>{"yarn"});
  const std::string& sentence = standing.sentence;
  EXPECT_TRUE(names(sentence, "200 | yarn | ntk"));
  // 10.5 % and about exp(0.1) * 0.2 * sqrt(2 / 640).
  std::smatch more;
  ASSERT_TRUE(std::regex_search(sentence, more, std::regex("ntk[^0-9]*([0-9.]+) % ± ([0-9.]+) % more")))
      << sentence;
  const double percent = std::stod(more[1]), error = std::stod(more[2]);
  EXPECT_NEAR(percent, 10.5, 4 * 1.2);
  EXPECT_NEAR(error, 1.2, 0.4);
  EXPECT_TRUE(names(last(), "100 | yarn"));
  EXPECT_FALSE(names(last(), "0")) << "no passkey was measured";
}

// A known spread around 0.04; one token per block.
TEST_F(Verdicts, ErrorsComeFromBlockDifferences) {
  const auto measure = [&](int tokens, float spread, bool hole = false) {
    log_.records.clear();
    std::vector<float> best(text_.begin(), text_.begin() + tokens), worse = best;
    for (size_t i = 0; i < worse.size(); ++i) worse[i] += 0.04F + (i % 2 == 0 ? spread : -spread);
    add_losses("none", 200, worse);
    add_losses("yarn", 200, best);
    if (hole) loss_in(log_.records[0]).blocks[2] = NAN;
    return by_perplexity(tabulate(log_), 200).sentence;
  };
  // exp(0.04) - 1, and exp(0.04) * spread / sqrt(n - 1).
  EXPECT_TRUE(names(measure(16, 0.0202F), "4.08 % ± 0.54 %"));
  const auto all = differences(tabulate(log_));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(std::tuple(all[0].kind, all[0].a, all[0].b, all[0].length),
            std::tuple(Kind::kPerplexity, Column("none"), Column("yarn"), 200));
  EXPECT_EQ(text_of(all[0]), "-3.92 % ± 0.50 % *");
  EXPECT_TRUE(holds(results_csv(log_), "\nperplexity_difference,yarn,,false,200,,,,0.96078"));
  EXPECT_EQ(csv_rows(results_csv(log_)).back().at("than"), "none");
  EXPECT_TRUE(names(measure(16, 0.04F), "4.1 % ± 1.1 %"));
  EXPECT_TRUE(names(measure(17, 0.02F, true), "0.54 %"));
  measure(16, 0.05F);
  EXPECT_EQ(text_of(differences(tabulate(log_))[0]), "-3.9 % ± 1.2 % *");
  EXPECT_EQ(text_of({Kind::kGrowing, "none", "yarn", 200, {}, {std::log(2.5), 0, 1, 0.1}}),
            "2.50 ± 0.25 times");
  const auto best = [&](int tokens) {
    return measure(tokens, 0.02F), by_perplexity(tabulate(log_), 200).best;
  };
  EXPECT_EQ(best(8), std::vector<Column>{"yarn"});
  EXPECT_EQ(best(7), std::vector<Column>{});  // too few blocks
}

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
  EXPECT_FALSE(holds(ratio->wide, "nan"));
  log_.view.ranges = {{100, 200}, {100, 390}};
  EXPECT_TRUE(names(last(), "100 | 400")) << "the ranges replace the default ones";
}

TEST_F(Verdicts, BlockSumsCoverConsecutiveTokens) {
  EXPECT_EQ(Json(block_sums({1.5F, NAN, 2.0F})).dump(), "[1.5,null,2.0]");
  std::vector<float> losses(1024, 1.0F);
  losses[2] = NAN;
  const auto sums = block_sums(losses);
  ASSERT_EQ(sums.size(), 512U);
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i == 1 ? 1.0 : 2.0) << i;
}

// A hundredth of a nat is invisible between different texts.
TEST_F(Verdicts, CompareTheSameTokens) {
  add_losses("none", 200, losses(0, 0.02));
  add_losses("yarn", 200, losses(0.01, 0.02));
  std::vector<float> shorter = losses(-1), longer = losses(0);
  shorter.resize(300);
  longer.push_back(1);
  add_losses("ntk", 200, shorter);
  add_losses("ntk", 400, longer);
  const Standing standing = by_perplexity(tabulate(log_), 200);
  EXPECT_EQ(standing.best, std::vector<Column>{"none"});
  EXPECT_EQ(standing.missing, std::vector<Column>{"ntk"});
  loss_in(log_.records[1]).blocks.clear();  // an earlier version's log
  EXPECT_TRUE(by_perplexity(tabulate(log_), 200).best.empty());
  loss_in(log_.records[0]).blocks.clear();
  EXPECT_TRUE(by_perplexity(tabulate(log_), 200).best.empty());
  EXPECT_TRUE(by_perplexity(tabulate(log_), 200).undecided.empty());
  EXPECT_TRUE(said("200"));
  add_losses("yarn", 400, longer);
  for (float& loss : longer) loss += 3;
  add_losses("none", 400, longer);
  for (auto& record : log_.records) loss_in(record).blocks.clear();
  EXPECT_EQ(by_perplexity(tabulate(log_), 400).best, (std::vector<Column>{"ntk", "yarn"}));
}

TEST_F(Verdicts, PlantedTiesRarelyWin) {
  int wins = 0;
  for (int round = 0; round < 300; ++round) {
    log_.records.clear();
    for (const char* scaling : {"none", "yarn"}) add_losses(scaling, 200, losses(0));
    const bool won = !by_perplexity(tabulate(log_), 200).best.empty();
    EXPECT_TRUE(won || none_wins()) << last();
    wins += won ? 1 : 0;
  }
  EXPECT_LE(wins, 9);  // 3 of 300 are expected
}

// 10 of 12 is not significantly less than 12 of 12, but is reported as 10 of 12.
TEST_F(Verdicts, TiesReportEachColumnsNumber) {
  log_.plan.passkey.trials = 6;
  add_found("none", 200, 0, 6);
  add_found("ntk", 200, 1, 6);
  add_found("yarn", 200, 1, 6);
  std::get<Retrieval>(log_.records.back().value).correct = 4;
  const Standing standing = by_retrieval(tabulate(log_), 200);
  EXPECT_EQ(standing.best, (std::vector<Column>{"ntk", "yarn"}));
  EXPECT_TRUE(names(standing.sentence, "ntk | 100 % | 12 | yarn | 83 %"));
  for (const char* once : {"ntk", "yarn"})
    EXPECT_EQ(standing.sentence.find(once), standing.sentence.rfind(once)) << standing.sentence;
}

TEST_F(Verdicts, OneColumnWinsNothing) {
  add_losses("none", 400, losses(0));
  add_found("none", 400, 1);
  add_grown("none", 0);
  EXPECT_TRUE(sentences().empty()) << Json(sentences());
}

// One scaling has some depths, another has nothing.
TEST_F(Verdicts, InterruptedSweepsCompareCompleteCells) {
  add_found("none", 400, 0.2);
  add_found("yarn", 400, 0);
  log_.records.pop_back();
  EXPECT_TRUE(sentences().empty()) << Json(sentences());
  add_found("ntk", 400, 1);
  EXPECT_TRUE(said("400 | ntk | 100 % | 20 | 80 | yarn"));
  EXPECT_TRUE(names(last(), "100 | ntk"));
  EXPECT_FALSE(names(last(), "0")) << "no perplexity was compared";
}

TEST_F(Verdicts, SharesDependOnTheNumberOfTrials) {
  const auto measure = [&](int64_t trials) {
    log_.records.clear();
    log_.plan.passkey.trials = trials;
    add_found("none", 200, 0.5, trials);
    add_found("yarn", 200, 1, trials);
  };
  measure(2);
  EXPECT_TRUE(said("200 | 50 % | 100 % | 4"));
  EXPECT_TRUE(names(last(), "100") && none_wins()) << last();
  EXPECT_FALSE(names(last(), "passkeys")) << last();
  measure(50);
  EXPECT_TRUE(said("200 | yarn | 100 % | 100 | 50 | 36 | 62"));
  // Newcombe 1998, table II, example (a): 56/70 - 48/80, 95 % from 0.0524 to 0.3339; here 99 %.
  const Gap found = gap(RetrievalValue{70, 56}, RetrievalValue{80, 48});
  EXPECT_NEAR(found.value, 0.2, 1e-12);
  EXPECT_NEAR(found.low, 0.0046, 2e-3);
  EXPECT_NEAR(found.high, 0.3714, 2e-3);
  const auto [low, high] = RetrievalValue{10, 0}.interval();  // Wilson: z^2 / (n + z^2)
  EXPECT_EQ(low, 0);
  EXPECT_NEAR(high, 3.8416 / 13.8416, 1e-9);
}

// Half of four does not differ significantly from all or none.
TEST_F(Verdicts, NameUndecidedComparisons) {
  log_.plan.passkey.trials = 2;
  add_found("none", 200, 0, 2);
  add_found("ntk", 200, 0.5, 2);
  add_found("yarn", 200, 1, 2);
  const Standing standing = by_retrieval(tabulate(log_), 200);
  std::vector<std::string> pairs;
  for (const Difference& difference : differences(tabulate(log_)))
    pairs.push_back(difference.b.name() + " " + difference.a.name() + " " + text_of(difference));
  EXPECT_EQ(pairs, (std::vector<std::string>{"ntk none +50 points", "yarn none +100 points *",
                                             "yarn ntk +50 points"}));
  EXPECT_EQ(standing.best, std::vector<Column>{"yarn"});
  EXPECT_EQ(standing.undecided, std::vector<Column>{"ntk"});
  EXPECT_TRUE(names(standing.sentence, "200 | yarn | 100 % | 4 | ntk | 100 | 12"));
  EXPECT_TRUE(names(last(), "100 | yarn"));
}

TEST_F(Verdicts, NameTheTask) {
  log_.plan.passkey.task = NeedleTask::kMultivalue;
  for (const char* scaling : {"none", "yarn"}) add_found(scaling, 400, 0);
  EXPECT_TRUE(said("400 | multivalue"));
  const std::string page = report_page(log_);
  EXPECT_TRUE(names(page, "<h2>Numbers (multivalue) found"));
  EXPECT_FALSE(names(Json(sentences()).dump(), "passkeys"));
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

TEST_F(Verdicts, StaleKeysOfAGrowingContextMayWin) {
  log_.plan.original_ctx = 200;
  add_grown("dynamic", 0.5, 0.001);
  add_grown("dynamic stale", 0, 0.001);
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
    const auto shown = [&] { return !by_growing(table, range).best.empty(); };
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

TEST_F(Verdicts, EachClauseHasItsReason) {
  // The clauses of a sentence that not every comparison has.
  const auto clauses = [](const std::string& sentence) {
    std::string found;
    for (const char* clause : {"noise", "Not decided", "No result", "alike", "every", "method", " to "})
      found += holds(sentence, clause) ? std::string(clause) + " " : "";
    return found;
  };
  const auto at_400 = [&] { return clauses(by_perplexity(tabulate(log_), 400).sentence); };
  const auto each = [&](const auto& add) {
    log_.records.clear();
    for (const char* scaling : {"none", "ntk", "yarn"}) add(scaling);
  };
  each([&, same = losses(0)](const char* scaling) { add_losses(scaling, 400, same); });
  EXPECT_EQ(at_400(), "alike every ");
  each([&](const char* scaling) { add_losses(scaling, 400, losses(0)); });
  EXPECT_EQ(at_400(), " to  ") << "lowest and highest";
  log_.records.clear();
  add_losses("none", 400, losses(1));
  add_losses("yarn", 400, losses(0));
  EXPECT_EQ(at_400(), "No result ") << "of ntk";
  add_losses("ntk", 400, losses(0.5));
  EXPECT_EQ(at_400() + clauses(last()), "") << "yarn wins alone";
  log_.records.pop_back();
  add_losses("ntk", 400, losses(0.001));
  EXPECT_EQ(at_400() + clauses(last()), "noise noise ") << "two win";
  EXPECT_TRUE(said("400 | yarn | ntk") && names(last(), "100 | ntk | yarn"));
  each([&](const char* scaling) { add_found(scaling, 400, 0); });
  EXPECT_EQ(clauses(sentences()[0]), "") << "none are found";
  each([&](const char* scaling) { add_found(scaling, 400, 0.5); });
  EXPECT_EQ(clauses(sentences()[0]), "every ");
  log_.plan.columns.back() = "sinks+yarn";
  EXPECT_EQ(clauses(last()), "method ");
}

TEST_F(Verdicts, WinnersOfBothAreNamedOnce) {
  for (const int64_t length : {200, 400}) {
    add_losses("none", length, losses(1));
    add_losses("yarn", length, losses(0));
    add_found("none", length, 0);
    add_found("yarn", length, length == 200 ? 1 : 0);
  }
  add_losses("none", 100, losses(1));
  add_losses("yarn", 100, losses(0));
  EXPECT_TRUE(said("400 | ntk"));
  EXPECT_TRUE(names(last(), "100 | yarn | 2 of 2 | 1 of 2"));
  EXPECT_FALSE(names(last(), "ntk"));
  EXPECT_EQ(last().find("yarn"), last().rfind("yarn")) << last();
}

}  // namespace
}  // namespace lariat::test
