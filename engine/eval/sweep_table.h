#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/eval/measurement.h"

namespace lariat {

inline constexpr double k95 = 1.96;  // standard errors of a 95 % interval

struct RetrievalValue {
  int64_t trials = 0;
  double found = 0;
  bool in_parts = false;  // task with several answers: a trial may find a fraction
  double share() const { return trials > 0 ? found / static_cast<double>(trials) : 0; }
  // Wilson score interval.
  std::pair<double, double> interval(double errors = k95) const;
  RetrievalValue& operator+=(const RetrievalValue& other);
};

struct SpeedValue {
  double prefill_tok_s = 0, decode_tok_s = 0;
  int64_t cache_bytes = 0;
};

// Losses by position.
struct GrowingValue {
  std::string label;  // "yarn ×4": includes the factor of a static scaling
  std::vector<PositionBucket> positions{};
  std::vector<double> blocks{};  // block_sums over text_tokens; a context holds `holds` of them
  int64_t text_tokens = 0, holds = 0;
};

// Cells may be missing (interrupted sweep, non-finite loss).
struct SweepTable {
  int64_t original_ctx = 0;
  std::vector<Column> columns;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  std::vector<NeedleTask> tasks;
  int64_t trials = 0;  // per length, over all depths
  std::map<std::pair<Column, int64_t>, Loss> perplexity{};
  std::map<std::tuple<Column, NeedleTask, int64_t, double>, RetrievalValue> passkey{};
  std::map<std::pair<Column, int64_t>, SpeedValue> speed{};
  std::vector<Column> growing_columns{};  // columns plus their stale variants
  std::map<Column, GrowingValue> growing{};
  View view{};
  double shown_p = 0;  // largest_shown_p (difference.h)

  // Sum over all depths; unset: not measured.
  std::optional<RetrievalValue> retrieval(const Column& column, NeedleTask task, int64_t length) const;
};
struct RetrievalMap {
  Column column;
  NeedleTask task;
  std::string name;  // the column's, or of several tasks the task's
};
std::vector<RetrievalMap> retrieval_maps(const SweepTable& table);

SweepTable tabulate(const Measurements& log);

// nullptr: no such cell.
template <class Cells>
const typename Cells::mapped_type* find_cell(const Cells& cells, const typename Cells::key_type& key) {
  const auto found = cells.find(key);
  return found == cells.end() ? nullptr : &found->second;
}

// --- a growing context ---

// The view's ranges, by default up to the original length L0, up to 2 * L0 and up to the end, rounded to
// bucket ends. Empty if nothing was measured.
std::vector<PositionRange> growing_ranges(const SweepTable& table);
// Unset: not measured, or not finite.
std::optional<LossSum> growing_sum(const SweepTable& table, const Column& column, const PositionRange& range);

// Formats 3 or 4 significant digits, without an exponent below a million.
std::string compact(double value);

}  // namespace lariat
