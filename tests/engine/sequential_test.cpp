#include "engine/eval/sequential.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace lariat::test {
namespace {

constexpr double kAlpha = 0.01;
constexpr int kRuns = 2000, kRows = 500;

TEST(Sequential, RowsOneWayThatAreEnough) {
  EXPECT_LT(discordant_e_value(10, 0), 100);
  EXPECT_GE(discordant_e_value(11, 0), 100);
  EXPECT_LT(discordant_e_value(0, 7), 20);
  EXPECT_GE(discordant_e_value(0, 8), 20);
  EXPECT_DOUBLE_EQ(discordant_e_value(0, 0), 1);
  EXPECT_NEAR(discordant_e_value(3, 2), 32.0 * 6 * 2 / 720, 1e-12);
}

TEST(Sequential, WithoutRowsEveryDifferenceIsPossible) {
  const auto [low, high] = PairedSequence(kAlpha).interval();
  EXPECT_NEAR(low, -1, 1e-9);
  EXPECT_NEAR(high, 1, 1e-9);
}

// By a direct evaluation in Python.
TEST(Sequential, IntervalsEqualTheFormulas) {
  PairedSequence mixed(kAlpha), better(kAlpha);
  for (int k = 0; k < 40; ++k) mixed.add(k * 7 % 5 / 4.0, k * 3 % 4 / 3.0);
  for (int k = 0; k < 120; ++k) better.add(k % 3 == 0 ? 0.5 : 1, k % 4 / 4.0);
  for (const auto& [sequence, low, high] : {std::tuple(&mixed, -0.28896566551512326, 0.2887655137603493),
                                            std::tuple(&better, 0.33415772486244055, 0.585049027614394)}) {
    EXPECT_NEAR(sequence->interval().first, low, 1e-9);
    EXPECT_NEAR(sequence->interval().second, high, 1e-9);
  }
}

bool shown(const PairedSequence& sequence) { return sequence.e_value() >= 1 / kAlpha; }

TEST(Sequential, BothColumnsMayBeBetter) {
  for (const bool first : {true, false}) {
    PairedSequence sequence(kAlpha);
    while (!shown(sequence)) sequence.add(first ? 1 : 0, first ? 0 : 1);
    EXPECT_EQ(sequence.rows(), 10) << first;
    EXPECT_FALSE(sequence.excluded(0.5)) << first;
  }
}

// Equal rows exclude 0.1 after 58 rows, 0.05 after 119.
TEST(Sequential, EqualRowsExcludeADifference) {
  for (const auto& [margin, rows] : {std::pair(0.1, 58), std::pair(0.05, 119)}) {
    PairedSequence sequence(kAlpha), more(kAlpha), less(kAlpha);
    while (!sequence.excluded(margin)) {
      sequence.add(1, 1);
      more.add(1, 0.98 - margin);
      less.add(0.98 - margin, 1);
    }
    EXPECT_EQ(sequence.rows(), rows) << margin;
    EXPECT_FALSE(shown(sequence) || more.excluded(margin) || less.excluded(margin));
    const auto [low, high] = sequence.interval();
    EXPECT_NEAR(low, -high, 1e-9);
  }
}

// 2,000 runs of 500 rows, read after each row. `discordant` of the rows differ, half of them each way: at a
// nominal 1 % at most 1.5 % may err.
TEST(Sequential, RarelyErrsWhenReadAfterEveryRow) {
  std::mt19937 random(5);
  for (const double discordant : {0.1, 0.4}) {
    int by_e_value = 0, by_sequence = 0;
    for (int run = 0; run < kRuns; ++run) {
      PairedSequence sequence(kAlpha);
      int64_t only_a = 0, only_b = 0;
      bool evidence = false, differs = false;
      for (int row = 0; row < kRows; ++row) {
        const double draw = std::uniform_real_distribution<double>(0, 1)(random);
        const bool a = draw < discordant / 2, b = !a && draw < discordant;
        only_a += a ? 1 : 0;
        only_b += b ? 1 : 0;
        evidence = evidence || discordant_e_value(only_a, only_b) >= 1 / kAlpha;
        sequence.add(a ? 1 : 0, b ? 1 : 0);
        differs = differs || (row % 10 == 9 && shown(sequence));  // each reading goes over all rows
      }
      by_e_value += evidence ? 1 : 0;
      by_sequence += differs ? 1 : 0;
    }
    EXPECT_LE(by_e_value, kRuns * 15 / 1000) << discordant;
    EXPECT_LE(by_sequence, kRuns * 15 / 1000) << discordant;
  }
}

// Shares of several answers with a mean difference of 0.2.
TEST(Sequential, IntervalsHoldAndNarrow) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 0.8);
  int wrong = 0;
  for (int run = 0; run < kRuns / 10; ++run) {
    PairedSequence sequence(kAlpha);
    double width = 2;
    bool inside = true;
    for (int row = 1; row <= kRows; ++row) {
      sequence.add(share(random) + 0.2, share(random));
      if (row % 100 != 0) continue;
      const auto [low, high] = sequence.interval();
      inside = inside && low <= 0.2 && 0.2 <= high;
      EXPECT_LT(high - low, width) << row;
      width = high - low;
    }
    EXPECT_TRUE(shown(sequence) && !sequence.excluded(0.1));
    wrong += inside ? 0 : 1;
  }
  EXPECT_LE(wrong, kRuns / 10 * 2 / 100);
}

}  // namespace
}  // namespace lariat::test
