#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

// Ranks a sweep's columns and tests whether their differences are statistically significant.
//
// Columns are compared at one point: a length, or positions of a growing context. At least two columns need a
// complete result there. The column with the lowest loss or the largest share leads. Columns that do not
// differ significantly from the leader, but are better than some other column, share the first place. If the
// leader differs from no column, no column wins. A difference is shown when Holm's procedure (Holm 1979)
// rejects equality at 1 % among all differences(): a sweep compares many columns at many points, and every
// second large one would show a false difference without the correction.
//
// Losses are compared by the mean paired difference on the same tokens, in which the text's difficulty
// cancels. Its standard error comes from sums over blocks of tokens, as neighbouring tokens are not
// independent. Without blocks, both errors add up as for independent texts. Shares are compared by Newcombe's
// interval from both Wilson intervals (Newcombe 1998, method 10). A partially correct trial counts as its
// fraction, which makes the interval conservative.
namespace lariat {

// Loss sums of at most 512 blocks of consecutive tokens; NaN: no token was scored.
std::vector<double> block_sums(const std::vector<float>& losses);

struct Gap {
  double value = 0, low = 0, high = 0;  // 99 % interval
  double error = 0;                     // standard error; NaN for shares
  double low_95 = 0, high_95 = 0;       // 95 % interval
  double p = 1;                         // probability of such a difference between equal columns, two-sided
};
Gap gap(const RetrievalValue& a, const RetrievalValue& b);  // a's share minus b's

// Ranking at one point.
struct Standing {
  std::vector<Column> best;       // in table order; empty: no column wins
  std::vector<Column> undecided;  // neither worse than `best` nor better than any column
  std::vector<Column> missing;    // columns without a complete result
  std::string sentence;           // "" with fewer than two columns
};
Standing by_perplexity(const SweepTable& table, int64_t length);
Standing by_retrieval(const SweepTable& table, int64_t length);
Standing by_growing(const SweepTable& table, const PositionRange& range);

// Difference of b from a: in mean loss (nats) or in the share found.
struct Difference {
  Kind kind;
  Column a, b;
  int64_t length;
  std::optional<PositionRange> range;  // growing contexts only
  Gap gap;
  bool shown = false;
};
// All pairs of columns with complete results.
std::vector<Difference> differences(const SweepTable& table);
std::vector<Difference> growing_differences(const SweepTable& table, const PositionRange& range);
// "-4.8 % ± 0.5 %", "9.13 ± 0.31 times" or "-12 points"; an asterisk marks significance.
std::string text_of(const Difference& difference);

// One sentence per length and measurement, and for the growing context. The last one summarizes all lengths
// beyond the original, if columns were compared there.
std::vector<std::string> conclusions(const SweepTable& table);
inline constexpr std::string_view kOverall = "Beyond the original";  // start of that sentence

}  // namespace lariat
