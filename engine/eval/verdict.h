#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

// Which column of a sweep is best, and whether the measurements show it.
//
// Columns are compared at one place: a length, or positions of a growing context. Only those count that were
// measured there whole; two are needed. The one with the lowest loss or the largest share leads, and beside
// it stand those from which it is not shown to differ and that are better than somebody too. Where the leader
// differs from nobody, nobody wins. A difference is shown when its interval of 99 % leaves out zero: several
// columns are compared at several places, so that one of 95 % would often err.
//
// Losses differ by the mean of b's less a's on the same tokens, with the standard error of the sums of blocks
// of consecutive tokens: tokens near each other are not independent, and how hard the text is cancels. Of
// logs without blocks the errors of both add up, as if they were of two texts.
// Shares differ by Newcombe's interval, made of both Wilson intervals (Newcombe 1998, method 10). A trial
// that finds a part counts as that part, which makes the interval too wide rather than too narrow.
namespace lariat {

// The losses of a text's tokens as at most 512 sums of consecutive ones; NaN where none of them was scored.
std::vector<double> block_sums(const std::vector<float>& losses);

struct Gap {
  double value = 0, low = 0, high = 0;
  double error = 0;  // standard error; NaN of shares
  bool shown() const { return low > 0 || high < 0; }
};
Gap gap(const RetrievalValue& a, const RetrievalValue& b);  // a's share less b's

// The columns at one place.
struct Standing {
  std::vector<Column> best;       // in the table's order; empty: nobody is shown to be worse
  std::vector<Column> undecided;  // not shown to be worse than these, nor to be better than anybody
  std::vector<Column> missing;    // those without a whole result there
  std::string sentence;           // "" with fewer than two
};
Standing by_perplexity(const SweepTable& table, int64_t length);
Standing by_retrieval(const SweepTable& table, int64_t length);
Standing by_growing(const SweepTable& table, const PositionRange& range);

// How column b differs from column a at one place: in the mean loss, in nats, or in the share that is found.
struct Difference {
  Kind kind;
  Column a, b;
  int64_t length;
  std::optional<PositionRange> range;  // of growing contexts
  Gap gap;
};
// All pairs of the columns that were measured whole at a length, or in a range of a growing context.
std::vector<Difference> differences(const SweepTable& table);
std::vector<Difference> growing_differences(const SweepTable& table, const PositionRange& range);
// "-4.8 % ± 0.5 %", "9.13 ± 0.31 times" or "-12 points"; followed by an asterisk if shown.
std::string text_of(const Difference& difference);

// What a sweep shows: a sentence for each length and measurement and for a growing context. The last one is
// over all lengths beyond the original, where columns were compared at one.
std::vector<std::string> conclusions(const SweepTable& table);
inline constexpr std::string_view kOverall = "Beyond the original";  // begins that one

}  // namespace lariat
