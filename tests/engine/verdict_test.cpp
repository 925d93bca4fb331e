// What a sweep says that it shows, and that it says no more.
#include "engine/eval/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/eval/report.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

using Json = nlohmann::ordered_json;

// A sweep of a model trained at 100 tokens, with texts of 640 tokens whose hard parts are hard for every
// scaling.
class Verdicts : public testing::Test {
 protected:
  Verdicts() {
    log_.header =
        Json::parse(R"({"lariat_sweep":1,"model":{"name":"m"},"text":{"name":"t"},"original_ctx":100,
      "scalings":["none","ntk","yarn"],"lengths":[100,200,400],"growing":{"measured":false},
      "perplexity":{"measured":true,"method":"sliding","stride":0,"parts":8,"max_tokens":640},
      "passkey":{"measured":true,"depths":[0,1],"trials":10,"seed":0,"task":"passkey","needles":4,
      "haystack":{"name":"noise"}},"speed":{"measured":false},"options":{"backend":"cpu","dtype":"bf16",
      "k_dtype":"f16","v_dtype":"bf16","factor":null,"stale_cache":false}})");
    std::mt19937 random(3);
    std::exponential_distribution<float> hardness(0.5F);
    for (int i = 0; i < kTokens; ++i) text_.push_back(hardness(random));
  }

  // The losses of the text, `above` on average, with a noise of its own in every column.
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
    log_.records.push_back({{"kind", "perplexity"},
                            {"scaling", scaling},
                            {"length", length},
                            {"tokens", sum.tokens},
                            {"nll", sum.nll},
                            {"ppl", sum.ppl()},
                            {"stderr", sum.standard_error()},
                            {"blocks", block_sums(of)}});
  }
  // A growing context of 400, whose last three quarters are `above`.
  void add_grown(const char* column, double above, double noise = 0.2) {
    std::vector<float> all = losses(0, noise);
    all.resize(400);
    Json record = {{"kind", "growing"},  {"scaling", column}, {"length", 400},
                   {"text_tokens", 400}, {"holds", 400},      {"positions", Json::array()}};
    std::vector<PositionBucket> buckets;
    for (int64_t i = 0; i < 400; ++i) {
      if (i >= 100) all[static_cast<size_t>(i)] += static_cast<float>(above);
      if (i % 25 == 0) buckets.push_back({{}, i, i + 25});
      buckets.back().add(static_cast<double>(all[static_cast<size_t>(i)]));
    }
    record["positions"] = to_json(buckets);
    record["blocks"] = block_sums(all);
    log_.records.push_back(record);
    log_.header["growing"].update(Json{{"measured", true}, {"step", 512}});
    log_.header["growing"]["columns"].push_back(column);
  }
  void add_found(const char* scaling, int64_t length, double share, int64_t trials = 10) {
    for (const double depth : {0.0, 1.0}) {
      const auto found = static_cast<int64_t>(std::lround(share * static_cast<double>(trials)));
      log_.records.push_back({{"kind", "passkey"},
                              {"scaling", scaling},
                              {"length", length},
                              {"depth", depth},
                              {"trials", trials},
                              {"correct", found}});
    }
  }
  std::vector<std::string> sentences() const { return conclusions(tabulate(log_)); }
  std::string last() const { return sentences().empty() ? "" : sentences().back(); }
  testing::AssertionResult said(const std::string& part) const {
    for (const auto& sentence : sentences()) {
      if (sentence.find(part) != std::string::npos) return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << part << " is not in " << Json(sentences()).dump(1);
  }

  static constexpr int kTokens = 640;
  std::vector<float> text_;
  std::mt19937 random_{11};
  SweepRecords log_;
};

TEST_F(Verdicts, NameAWinnerWithTheDifferenceAndItsError) {
  const auto same = losses(0);
  for (const char* scaling : {"none", "ntk", "yarn"}) add_losses(scaling, 100, same);
  add_losses("none", 200, losses(1));
  add_losses("ntk", 200, losses(0.1));
  add_losses("yarn", 200, losses(0));
  EXPECT_TRUE(said("At 100 tokens every scaling reads alike (perplexity "));
  const Standing standing = by_perplexity(tabulate(log_), 200);
  EXPECT_EQ(standing.best, std::vector<std::string>{"yarn"});
  const std::string& sentence = standing.sentence;
  EXPECT_TRUE(sentence.starts_with("At 200 tokens yarn has the lowest perplexity, ")) << sentence;
  // 10.5 % and about exp(0.1) * 0.2 * sqrt(2 / 640).
  double percent = 0, error = 0;
  ASSERT_EQ(std::sscanf(sentence.c_str() + sentence.find("; ntk has "), "; ntk has %lf %% ± %lf %% more.",
                        &percent, &error),
            2)
      << sentence;
  EXPECT_NEAR(percent, 10.5, 4 * 1.2);
  EXPECT_NEAR(error, 1.2, 0.4);
  EXPECT_EQ(last(), "Beyond the original 100 tokens yarn reads best at the one length compared.");
}

// Losses whose differences are 0.04 on average and have a known spread, of one token in a block.
TEST_F(Verdicts, ErrorsAreOfTheBlocksDifferences) {
  const auto measure = [&](int tokens, float spread) {
    log_.records.clear();
    std::vector<float> best(text_.begin(), text_.begin() + tokens), worse = best;
    for (size_t i = 0; i < worse.size(); ++i) worse[i] += 0.04F + (i % 2 == 0 ? spread : -spread);
    add_losses("none", 200, worse);
    add_losses("yarn", 200, best);
    return by_perplexity(tabulate(log_), 200).sentence;
  };
  // exp(0.04) - 1, and exp(0.04) * spread / sqrt(n - 1).
  EXPECT_TRUE(holds(measure(16, 0.02F), "; the unscaled model has 4.08 % ± 0.54 % more."));
  EXPECT_TRUE(holds(measure(16, 0.04F), "; the unscaled model has 4.1 % ± 1.1 % more."));
  EXPECT_FALSE(holds(measure(16, 0.02F), "between them"));
  EXPECT_TRUE(holds(measure(8, 0.02F), "yarn has the lowest perplexity"));
  EXPECT_TRUE(holds(measure(7, 0.02F), "no difference is shown"));  // too few blocks
  EXPECT_TRUE(holds(measure(7, 0.02F), " to "));
}

TEST_F(Verdicts, BlockSumsAreOfConsecutiveTokens) {
  EXPECT_EQ(block_sums({1.5F, NAN, 2.0F}), Json::parse("[1.5, null, 2.0]"));
  std::vector<float> losses(1024, 1.0F);
  losses[2] = NAN;
  const Json sums = block_sums(losses);
  ASSERT_EQ(sums.size(), 512U);
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i == 1 ? 1.0 : 2.0) << i;
}

// The columns differ by a hundredth of a nat: of texts that were not the same, nobody could tell.
TEST_F(Verdicts, ComparesTheSameTokens) {
  add_losses("none", 200, losses(0, 0.02));
  add_losses("yarn", 200, losses(0.01, 0.02));
  EXPECT_EQ(by_perplexity(tabulate(log_), 200).best, std::vector<std::string>{"none"});
  for (auto& record : log_.records) record.erase("blocks");  // a log of an earlier version
  EXPECT_TRUE(by_perplexity(tabulate(log_), 200).best.empty());
  EXPECT_TRUE(said("At 200 tokens no difference is shown (perplexity "));
}

TEST_F(Verdicts, OfPlantedTiesAreRarelyWinners) {
  int wins = 0;
  for (int round = 0; round < 300; ++round) {
    log_.records.clear();
    for (const char* scaling : {"none", "yarn"}) add_losses(scaling, 200, losses(0));
    wins += by_perplexity(tabulate(log_), 200).best.empty() ? 0 : 1;
  }
  EXPECT_LE(wins, 9);  // of 300, of which one in a hundred is expected
  EXPECT_TRUE(said("Beyond the original 100 tokens no difference between scalings is shown.") || wins > 0);
}

TEST_F(Verdicts, TwoThatDoNotDifferWinTogether) {
  add_losses("none", 400, losses(1));
  add_losses("ntk", 400, losses(0));
  add_losses("yarn", 400, losses(0.001));
  EXPECT_TRUE(said("At 400 tokens ntk and yarn have the lowest perplexity, "));
  EXPECT_TRUE(said(", with no difference shown between them; the unscaled model has "));
  EXPECT_TRUE(said(" times that."));
  EXPECT_EQ(last(), "Beyond the original 100 tokens ntk and yarn read best at the one length compared.");
}

TEST_F(Verdicts, OneColumnWinsNothing) {
  add_losses("none", 400, losses(0));
  add_found("none", 400, 1);
  add_grown("none", 0);
  EXPECT_TRUE(sentences().empty()) << Json(sentences());
}

// As an interrupted sweep leaves it: all of one scaling, of another some depths, of the third nothing.
TEST_F(Verdicts, OfAnInterruptedSweepCompareWhatIsWhole) {
  add_found("none", 400, 0.2);
  add_found("yarn", 400, 0);
  log_.records.pop_back();
  EXPECT_TRUE(sentences().empty()) << Json(sentences());
  add_found("ntk", 400, 1);
  EXPECT_TRUE(
      said("At 400 tokens ntk finds the most passkeys, 100 % of 20; the unscaled model finds 80 points "
           "fewer ("));
  EXPECT_TRUE(said(" No result there: yarn."));
  EXPECT_EQ(last(), "Beyond the original 100 tokens ntk finds the most passkeys at the one length compared.");
}

TEST_F(Verdicts, OfSharesDependOnHowManyTrialsThereWere) {
  const auto measure = [&](int64_t trials) {
    log_.records.clear();
    log_.header["passkey"]["trials"] = trials;
    add_found("none", 200, 0.5, trials);
    add_found("yarn", 200, 1, trials);
  };
  measure(2);
  EXPECT_TRUE(said("At 200 tokens no difference is shown in the passkeys found (50 % to 100 % of 4)."));
  EXPECT_EQ(last(), "Beyond the original 100 tokens no difference between scalings is shown.");
  measure(50);
  EXPECT_TRUE(
      said("At 200 tokens yarn finds the most passkeys, 100 % of 100; the unscaled model finds 50 "
           "points fewer (36 to 62)."));
  // Newcombe 1998, table II, example (a): 56/70 - 48/80, 95 % from 0.0524 to 0.3339; here 99 %.
  const Gap found = gap(RetrievalValue{70, 56}, RetrievalValue{80, 48});
  EXPECT_NEAR(found.value, 0.2, 1e-12);
  EXPECT_NEAR(found.low, 0.0046, 2e-3);
  EXPECT_NEAR(found.high, 0.3714, 2e-3);
  const auto [low, high] = RetrievalValue{10, 0}.interval();  // Wilson: z^2 / (n + z^2)
  EXPECT_EQ(low, 0);
  EXPECT_NEAR(high, 3.8416 / 13.8416, 1e-9);
}

// Half of four is not shown to be less than all of them, nor to be more than none.
TEST_F(Verdicts, SayWhatIsNotDecided) {
  log_.header["passkey"]["trials"] = 2;
  add_found("none", 200, 0.5, 2);
  add_found("ntk", 200, 0, 2);
  add_found("yarn", 200, 1, 2);
  EXPECT_TRUE(said(
      "At 200 tokens yarn finds the most passkeys, 100 % of 4; ntk finds 100 points fewer (12 to 100). Not "
      "decided: the unscaled model."));
  EXPECT_EQ(last(),
            "Beyond the original 100 tokens yarn finds the most passkeys at the one length compared.");
}

TEST_F(Verdicts, SpeakOfTheTask) {
  log_.header["passkey"]["task"] = "multivalue";
  for (const char* scaling : {"none", "yarn"}) add_found(scaling, 400, 0);
  EXPECT_TRUE(said("At 400 tokens none of the numbers (multivalue) are found."));
  const std::string page = sweep_report(log_);
  EXPECT_TRUE(holds(page, "\"things\":\"numbers (multivalue)\""));
  EXPECT_FALSE(holds(Json(sentences()).dump(), "passkey"));
}

TEST_F(Verdicts, OfAGrowingContextCompareColumnsAndStaleKeys) {
  add_grown("none", 3);
  add_grown("dynamic", 0.05, 0.02);
  add_grown("dynamic stale", 1);
  add_grown("yarn", 0, 0.02);
  EXPECT_TRUE(said("Before position 100 of a growing context no difference is shown (perplexity "));
  EXPECT_TRUE(said("From position 100 to 400 of a growing context yarn has the lowest perplexity, "));
  EXPECT_TRUE(said("; dynamic has 5."));
  EXPECT_TRUE(said("Beside re-rotated keys, stale ones have from position 100 on: under dynamic 2."));
  EXPECT_TRUE(said(" times that."));
  const auto ranges = growing_ranges(tabulate(log_));
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[1].name(), "100–200");
  EXPECT_EQ(by_growing(tabulate(log_), ranges[1]).best, std::vector<std::string>{"yarn"});
  auto& positions = log_.records[2]["positions"];  // a hole in the stale column
  positions[8]["loss"] = nullptr;
  EXPECT_FALSE(growing_sum(tabulate(log_), "dynamic stale", ranges[2]) &&
               growing_sum(tabulate(log_), "dynamic stale", ranges[1]));
  EXPECT_FALSE(said("Beside re-rotated keys"));
}

TEST_F(Verdicts, WinnersOfBothAreNamedOnce) {
  for (const int64_t length : {200, 400}) {
    add_losses("none", length, losses(1));
    add_losses("yarn", length, losses(0));
    add_found("none", length, 0);
    add_found("yarn", length, length == 200 ? 1 : 0);
  }
  EXPECT_TRUE(said("At 400 tokens none of the passkeys are found. No result there: ntk."));
  EXPECT_EQ(
      last(),
      "Beyond the original 100 tokens yarn wins: lowest perplexity at 2 of 2 lengths, most passkeys at 1 "
      "of 2 lengths.");
}

}  // namespace
}  // namespace lariat::test
