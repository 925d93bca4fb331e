#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/eval/measurement.h"

namespace lariat {

struct RetrievalValue {
  int64_t trials = 0;
  double found = 0;
  bool in_parts = false;  // of tasks with several answers, of which a trial may find a share
  double share() const { return trials > 0 ? found / static_cast<double>(trials) : 0; }
  // In which the share of all such trials is, to `errors` standard errors.
  std::pair<double, double> interval(double errors = 1.96) const;
  RetrievalValue& operator+=(const RetrievalValue& other);
};

struct SpeedValue {
  double prefill_tok_s = 0, decode_tok_s = 0;
  int64_t cache_bytes = 0;
};

// The losses of a growing context under one scaling, by position.
struct GrowingValue {
  std::string label;  // "yarn ×4": with the factor of a static scaling
  std::vector<PositionBucket> positions{};
  std::vector<double> blocks{};  // of a text of text_tokens, of which a context holds so many
  int64_t text_tokens = 0, holds = 0;
};

// The results by scaling, length and depth: the input of tables and conclusions. Cells may be missing
// (an interrupted sweep, a loss that is not finite).
struct SweepTable {
  int64_t original_ctx = 0;
  std::vector<Column> columns;  // or the names of several passkey tasks under one scaling
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  NeedleTask task = NeedleTask::kPasskey;
  int64_t trials = 0;  // at a length, over all depths
  std::map<std::pair<Column, int64_t>, Loss> perplexity{};
  std::map<std::tuple<Column, int64_t, double>, RetrievalValue> passkey{};
  std::map<std::pair<Column, int64_t>, SpeedValue> speed{};
  std::vector<Column> growing_columns{};  // columns, and those with stale keys
  std::map<Column, GrowingValue> growing{};
  View view{};

  // The sum over all depths; unset: none was measured.
  std::optional<RetrievalValue> retrieval(const Column& column, int64_t length) const;
};

SweepTable tabulate(const Measurements& log);

// The value of a cell, or nullptr.
template <class Cells>
const typename Cells::mapped_type* find_cell(const Cells& cells, const typename Cells::key_type& key) {
  const auto found = cells.find(key);
  return found == cells.end() ? nullptr : &found->second;
}

// --- a growing context ---

// The view's ranges, or three: up to the original length, up to twice it and up to the end. They begin and
// end at the nearest ends of buckets; none when nothing was measured.
std::vector<PositionRange> growing_ranges(const SweepTable& table);
// The losses at all positions inside the range; unset: not measured, or not finite.
std::optional<LossSum> growing_sum(const SweepTable& table, const Column& column, const PositionRange& range);

// A number in 3 or 4 significant digits, without an exponent below a million.
std::string compact(double value);

}  // namespace lariat
