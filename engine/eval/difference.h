#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

// Differences between a sweep's columns at one point: a length, or positions of a growing context.
//
// Losses are compared by the mean paired difference on the same tokens, in which the text's difficulty
// cancels. Its standard error comes from sums over blocks of tokens, as neighbouring tokens are not
// independent. Without blocks, both errors add up as for independent texts. Shares are compared by Newcombe's
// interval from both Wilson intervals (Newcombe 1998, method 10). A partially correct trial counts as its
// fraction, which makes the interval conservative.
//
// A difference is shown when Holm's procedure (Holm 1979) rejects equality at 1 % among all differences():
// uncorrected, every second large sweep would show a false one.
namespace lariat {

// Loss sums of at most 512 blocks of consecutive tokens; NaN: no token was scored.
std::vector<double> block_sums(const std::vector<float>& losses);

struct LossColumn {
  Column column;
  double value = 0, error = 0;   // mean loss, standard error
  std::vector<double> blocks{};  // NaN: nothing scored
  double block_tokens = 0;       // tokens per block
  int64_t tokens = 0;
};
struct ShareColumn : RetrievalValue {
  Column column;
  double value = 0;  // less is better
};
// Columns with a complete result.
std::vector<LossColumn> perplexity_columns(const SweepTable& table, int64_t length);
std::vector<ShareColumn> share_columns(const SweepTable& table, int64_t length);
std::vector<LossColumn> growing_columns(const SweepTable& table, const PositionRange& range);
std::optional<LossColumn> growing_column(const SweepTable& table, const Column& column,
                                         const PositionRange& range);

struct Gap {
  double value = 0, low = 0, high = 0;  // 99 % interval
  double error = 0;                     // standard error; NaN for shares
  double low_95 = 0, high_95 = 0;       // 95 % interval
  double p = 1;                         // probability of such a difference between equal columns, two-sided
};
Gap gap(const LossColumn& a, const LossColumn& b);          // b's mean loss minus a's, in nats
Gap gap(const RetrievalValue& a, const RetrievalValue& b);  // a's share minus b's
// Largest Gap::p that counts as shown; 0: none.
double largest_shown_p(const SweepTable& table);

// Difference of b from a: in mean loss (nats) or in the share found.
struct Difference {
  Kind kind;
  Column a, b;
  int64_t length;
  std::optional<PositionRange> range;  // growing contexts only
  Gap gap;
  int64_t count = 0;  // tokens or trials of each column
  bool shown = false;
};
// All pairs of columns with complete results.
std::vector<Difference> differences(const SweepTable& table);
std::vector<Difference> growing_differences(const SweepTable& table, const PositionRange& range);
// "-4.8 % ± 0.5 %", "9.13 ± 0.31 times" or "-12 points"; an asterisk marks significance.
std::string text_of(const Difference& difference);

}  // namespace lariat
