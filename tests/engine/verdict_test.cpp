#include "engine/eval/verdict.h"

#include <regex>

#include "engine/eval/render/report.h"
#include "engine/eval/render/results_csv.h"
#include "tests/engine/verdict_fixture.h"

namespace lariat::test {
namespace {

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
  EXPECT_TRUE(holds(csv_of(log_), "\nperplexity_difference,yarn,,false,200,,,,0.96078"));
  auto row = csv_rows(csv_of(log_)).back();
  EXPECT_EQ(row["than"] + " " + row["count"] + " " + row["unit"], "none 16 ratio");
  const double value = std::stod(row["value"]), error = std::stod(row["error"]);
  EXPECT_NEAR(error, 0.00501, 1e-5);
  EXPECT_NEAR(std::stod(row["high"]), value * std::exp(1.96 * error / value), 1e-9);
  EXPECT_NEAR(std::stod(row["low"]), value * std::exp(-1.96 * error / value), 1e-9);
  EXPECT_NEAR(all[0].gap.high - all[0].gap.low, 2 * 2.576 * all[0].gap.error, 1e-9);
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

// Thirty points with 3 columns that do not differ: 90 differences, of which about one lies outside its 99 %
// interval. In 100 such sweeps, about one may show any difference.
TEST_F(Verdicts, LargeSweepsOfTiesShowNothing) {
  log_.plan.lengths.clear();
  for (int64_t i = 1; i <= 30; ++i) log_.plan.lengths.push_back(100 * i);
  int showing = 0, outside = 0;
  for (int run = 0; run < 100; ++run) {
    log_.records.clear();
    for (const int64_t length : log_.plan.lengths) {
      for (const char* scaling : {"none", "ntk", "yarn"}) add_losses(scaling, length, losses(0));
    }
    bool any = false;
    for (const Difference& difference : differences(tabulate(log_))) {
      any = any || difference.shown;
      outside += difference.gap.low > 0 || difference.gap.high < 0 ? 1 : 0;
    }
    showing += any ? 1 : 0;
  }
  EXPECT_LE(showing, 4);
  EXPECT_GE(outside, 45) << "of 9,000, without the correction";
}

// p: 0.0041
TEST_F(Verdicts, EqualColumnsCountAsComparisons) {
  std::vector<float> best(text_.begin(), text_.begin() + 16), worse = best;
  for (size_t i = 0; i < worse.size(); ++i) worse[i] += 0.04F + (i % 2 == 0 ? 0.054F : -0.054F);
  add_losses("none", 200, best);
  add_losses("yarn", 200, worse);
  add_losses("none", 400, losses(0));
  add_losses("yarn", 400, losses(1));
  float loss = 1;
  for (const char* scaling : {"none", "ntk", "yarn"}) {
    add_losses(scaling, 100, {++loss, loss});
    loss_in(log_.records.back()).error = NAN;
  }
  const auto shown = [&] {
    return std::ranges::count(differences(tabulate(log_)), true, &Difference::shown);
  };
  EXPECT_EQ(shown(), 2);
  add_losses("ntk", 200, best);
  EXPECT_EQ(shown(), 1);
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
  auto row = csv_rows(csv_of(log_)).back();
  EXPECT_EQ(row["measure"] + row["depth"] + row["from"] + row["error"], "passkey_difference");
  EXPECT_EQ(row["value"] + " " + row["unit"], "0.5 share");
  EXPECT_TRUE(names(last(), "100") && none_wins()) << last();
  EXPECT_FALSE(names(last(), "passkeys")) << last();
  measure(50);
  EXPECT_TRUE(said("200 | yarn | 100 % | 100 | 50 | 36 | 62"));
  log_.plan.passkey.tasks = {NeedleTask::kPasskey, NeedleTask::kMultikey};
  EXPECT_TRUE(sentences().empty()) << Json(sentences());
  // Newcombe 1998, table II, example (a): 56/70 - 48/80, 95 % from 0.0524 to 0.3339; here 99 %.
  const Gap found = gap(RetrievalValue{70, 56}, RetrievalValue{80, 48});
  EXPECT_NEAR(found.value, 0.2, 1e-12);
  EXPECT_NEAR(found.low, 0.0046, 2e-3);
  EXPECT_NEAR(found.high, 0.3714, 2e-3);
  EXPECT_DOUBLE_EQ(gap(RetrievalValue{80, 48}, RetrievalValue{70, 56}).p, found.p);
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
  const std::string page = page_of(log_);
  EXPECT_TRUE(names(page, "<h2>Numbers (multivalue) found"));
  EXPECT_TRUE(holds(csv_of(log_), "\nmultivalue_difference,"));
  EXPECT_FALSE(names(Json(sentences()).dump(), "passkeys"));
}

TEST_F(Verdicts, EachClauseHasItsReason) {
  // The clauses of a sentence that not every comparison has.
  const auto clauses = [](const std::string& sentence) {
    std::string found;
    for (const char* clause : {"not decided", "Not decided", "No result", "alike", "every", "method", " to "})
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
  EXPECT_EQ(at_400() + clauses(last()), "not decided not decided ") << "two win";
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
