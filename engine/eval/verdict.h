#pragma once
#include <string>
#include <vector>

#include "engine/eval/difference.h"

// Ranks a sweep's columns and tests whether their differences are statistically significant.
//
// Columns are compared at one point: a length, or positions of a growing context. At least two columns need a
// complete result there. The column with the lowest loss or the largest share leads. Columns that do not
// differ significantly from the leader, but are better than some other column, share the first place. If the
// leader differs from no column, no column wins.
namespace lariat {

// Ranking at one point.
struct Standing {
  std::vector<Column> best;       // in table order; empty: no column wins
  std::vector<Column> undecided;  // neither worse than `best` nor better than any column
  std::vector<Column> missing;    // columns without a complete result
  std::string sentence;           // "" with fewer than two columns
};
// Without columns that check a reused one.
Standing by_perplexity(const SweepTable& table, int64_t length);
Standing by_retrieval(const SweepTable& table, int64_t length);
Standing by_growing(const SweepTable& table, const PositionRange& range);

// One sentence per length and measurement, and for the growing context. The last one summarizes all lengths
// beyond the original, if columns were compared there.
std::vector<std::string> conclusions(const SweepTable& table);
inline constexpr std::string_view kOverall = "Beyond the original";  // start of that sentence

}  // namespace lariat
