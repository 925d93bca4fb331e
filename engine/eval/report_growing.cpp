#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/chart.h"
#include "engine/eval/report.h"

namespace lariat {
namespace {

// The end of a bucket that is nearest to `position`, but not the beginning of the first.
int64_t nearest_end(const std::vector<PositionBucket>& buckets, int64_t position) {
  const auto distance = [&](const PositionBucket& bucket) { return std::abs(bucket.to - position); };
  return std::ranges::min_element(buckets, {}, distance)->to;
}

// What the keys of a scaling that follows the length cost, left stale and not.
std::string growing_sentence(const SweepTable& table, const PositionRange& before,
                             const PositionRange& after) {
  std::vector<std::string> parts;
  const auto times = [&](const std::string& column) -> std::optional<double> {
    const auto early = growing_perplexity(table, column, before);
    const auto late = growing_perplexity(table, column, after);
    if (!early || !late) return std::nullopt;
    return *late / *early;
  };
  for (const auto& column : table.growing_columns) {
    if (!is_stale(column)) continue;
    const std::string scaling = scaling_of(column);
    const auto consistent = times(scaling), stale = times(column);
    if (!consistent || !stale) continue;
    const char* that = parts.empty() ? " times that of the positions before" : "";
    parts.push_back(fmt::format("under {} {}{} ({} with stale keys)", scaling, compact(*consistent), that,
                                compact(*stale)));
  }
  const auto unscaled = times("none");
  if (parts.empty()) return "";
  if (unscaled) parts.push_back("under the unscaled model " + compact(*unscaled));
  return fmt::format("While the context grows from {} to {} tokens, perplexity is {}.", after.from, after.to,
                     joined(parts));
}

// What a factor for the longest text costs the short ones.
std::string early_sentence(const SweepTable& table, const PositionRange& before) {
  const auto best = best_growing(table, before);
  if (best.empty()) return "";
  const auto label = [&](const std::string& column) { return spoken(table.growing.at(column).label); };
  const double lowest = growing_perplexity(table, best.front(), before).value_or(1);
  std::vector<std::string> parts;
  for (const auto& column : table.growing_columns) {
    const double ratio = growing_perplexity(table, column, before).value_or(0) / lowest;
    if (ratio <= kTie) continue;
    parts.push_back(ratio < 2 ? fmt::format("{} {:.1f} % more", label(column), 100 * (ratio - 1))
                              : fmt::format("{} {} times that", label(column), compact(ratio)));
  }
  if (parts.empty()) return "";
  return fmt::format("Before position {} perplexity is {} under {}; {}.", before.to, compact(lowest),
                     label(best.front()), joined(parts));
}

}  // namespace

std::vector<PositionRange> growing_ranges(const SweepTable& table) {
  for (const auto& column : table.growing_columns) {
    const auto found = table.growing.find(column);
    if (found == table.growing.end() || found->second.positions.empty()) continue;
    const auto& buckets = found->second.positions;
    std::vector<PositionRange> ranges;
    int64_t from = 0;
    for (const int64_t end : {table.original_ctx, 2 * table.original_ctx, buckets.back().to}) {
      const int64_t to = nearest_end(buckets, end);
      if (to > from) ranges.push_back({from, to});
      from = std::max(from, to);
    }
    return ranges;
  }
  return {};
}

std::optional<double> growing_perplexity(const SweepTable& table, const std::string& column,
                                         const PositionRange& range) {
  const auto found = table.growing.find(column);
  if (found == table.growing.end()) return std::nullopt;
  double nll = 0, tokens = 0;
  for (const auto& bucket : found->second.positions) {
    if (bucket.from < range.from || bucket.to > range.to || bucket.tokens == 0) continue;
    nll += bucket.nll;
    tokens += static_cast<double>(bucket.tokens);
  }
  const double ppl = std::exp(nll / tokens);
  if (tokens == 0 || !(ppl >= 0.5 && ppl <= kMostPerplexity)) return std::nullopt;
  return ppl;
}

std::vector<std::string> best_growing(const SweepTable& table, const PositionRange& range) {
  double lowest = HUGE_VAL;
  for (const auto& column : table.growing_columns)
    lowest = std::min(lowest, growing_perplexity(table, column, range).value_or(HUGE_VAL));
  std::vector<std::string> best;
  for (const auto& column : table.growing_columns) {
    if (growing_perplexity(table, column, range).value_or(HUGE_VAL) <=
        std::min(lowest * kTie, kMostPerplexity))
      best.push_back(column);
  }
  return best;
}

std::vector<std::string> growing_conclusions(const SweepTable& table) {
  const auto ranges = growing_ranges(table);
  if (ranges.size() < 2) return {};
  const PositionRange before = ranges.front(), after{before.to, ranges.back().to};
  std::vector<std::string> sentences;
  for (auto& sentence : {growing_sentence(table, before, after), early_sentence(table, before)}) {
    if (!sentence.empty()) sentences.push_back(sentence);
  }
  return sentences;
}

}  // namespace lariat
