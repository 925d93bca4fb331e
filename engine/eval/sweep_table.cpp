#include "engine/eval/sweep_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/difference.h"

namespace lariat {
namespace {

constexpr double kMostPerplexity = 1e100;  // larger values are treated as not finite

GrowingValue growing_value(const Column& column, const Growing& grown) {
  GrowingValue value{.label = column.name(), .blocks = grown.blocks};
  value.text_tokens = grown.text_tokens.value_or(0);
  value.holds = grown.holds.value_or(0);
  if (value.text_tokens < std::ssize(value.blocks) || value.holds < 1) value.blocks.clear();
  if (grown.factor && !column.factor) value.label += fmt::format(" ×{:g}", *grown.factor);
  for (const PositionLoss& at : grown.positions) {
    const auto n = static_cast<double>(at.tokens);
    value.positions.push_back(
        {{at.tokens, n * at.loss, n * (at.loss * at.loss + at.error * at.error * (n - 1))}, at.from, at.to});
  }
  return value;
}

// --- a growing context ---

int64_t nearest_end(const std::vector<PositionBucket>& buckets, int64_t position) {
  const auto distance = [&](const PositionBucket& bucket) { return std::abs(bucket.to - position); };
  return std::ranges::min_element(buckets, {}, distance)->to;
}

}  // namespace

std::pair<double, double> RetrievalValue::interval(double errors) const {
  const auto n = static_cast<double>(trials);
  const double p = share(), z = errors * errors / n, half = errors * std::sqrt((p * (1 - p) + z / 4) / n);
  return {std::max(0.0, (p + z / 2 - half) / (1 + z)), std::min(1.0, (p + z / 2 + half) / (1 + z))};
}

RetrievalValue& RetrievalValue::operator+=(const RetrievalValue& other) {
  trials += other.trials;
  found += other.found;
  in_parts = in_parts || other.in_parts;
  return *this;
}

std::optional<RetrievalValue> SweepTable::retrieval(const Column& column, NeedleTask task,
                                                    int64_t length) const {
  RetrievalValue sum;
  for (const double depth : depths) {
    if (const auto* value = find_cell(passkey, {column, task, length, depth})) sum += *value;
  }
  if (sum.trials == 0) return std::nullopt;
  return sum;
}

std::vector<RetrievalMap> retrieval_maps(const SweepTable& table) {
  std::vector<RetrievalMap> maps;
  for (const Column& column : table.columns) {
    for (const NeedleTask task : table.tasks)
      maps.push_back({column, task, table.tasks.size() > 1 ? std::string(name_of(task)) : column.name()});
  }
  return maps;
}

SweepTable tabulate(const Measurements& log) {
  const Plan& plan = log.plan;
  SweepTable table{plan.original_ctx, plan.columns, plan.lengths, plan.passkey.depths, plan.passkey.tasks};
  if (table.tasks.empty()) table.tasks = {plan.passkey.task};
  table.trials = plan.passkey.trials * std::ssize(table.depths);
  if (plan.growing.measured) table.growing_columns = plan.growing.columns;
  table.view = log.view;
  for (const Record& record : log.records) {
    const std::pair cell(record.column, record.length);
    if (const auto* loss = std::get_if<Loss>(&record.value)) {
      if (!(loss->ppl >= 0.5 && loss->ppl <= kMostPerplexity)) continue;
      Loss& value = table.perplexity[cell] = *loss;
      if (!(loss->error >= 0 && loss->error <= kMostPerplexity)) value.error = std::nan("");
    } else if (const auto* found = std::get_if<Retrieval>(&record.value)) {
      const auto correct = static_cast<double>(found->correct);
      const NeedleTask task = found->task.value_or(plan.passkey.task);
      table.passkey[{record.column, task, record.length, found->depth}] = {
          found->trials, found->recall.value_or(correct), found->recall.has_value()};
    } else if (const auto* growing = std::get_if<Growing>(&record.value)) {
      if (record.length == table.lengths.back())
        table.growing[record.column] = growing_value(record.column, *growing);
    } else if (const auto* speed = std::get_if<Speed>(&record.value)) {
      const Timing timing = record.timing.value_or(Timing{});
      table.speed[cell] = {timing.prefill_tok_s.value_or(NAN), timing.decode_tok_s.value_or(NAN),
                           speed->cache_bytes};
    }
  }
  table.shown_p = largest_shown_p(table);
  return table;
}

std::vector<PositionRange> growing_ranges(const SweepTable& table) {
  for (const auto& column : table.growing_columns) {
    const GrowingValue* value = find_cell(table.growing, column);
    if (value == nullptr || value->positions.empty()) continue;
    const auto& buckets = value->positions;
    std::vector<PositionRange> ranges;
    for (const auto& [first, end] : table.view.ranges) {
      const int64_t begin = first > 0 ? nearest_end(buckets, first) : 0, to = nearest_end(buckets, end);
      if (to > begin) ranges.push_back({begin, to});
    }
    if (!table.view.ranges.empty()) return ranges;
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

std::optional<LossSum> growing_sum(const SweepTable& table, const Column& column,
                                   const PositionRange& range) {
  const GrowingValue* value = find_cell(table.growing, column);
  if (value == nullptr) return std::nullopt;
  LossSum sum;
  int64_t ends = range.from > 0 ? 0 : 1;  // of the range, at ends of buckets
  for (const auto& bucket : value->positions) {
    ends += (bucket.from == range.from && range.from > 0 ? 1 : 0) + (bucket.to == range.to ? 1 : 0);
    if (bucket.from >= range.from && bucket.to <= range.to && bucket.tokens > 0) sum += bucket;
  }
  if (ends < 2) return std::nullopt;
  if (!(sum.ppl() >= 0.5 && sum.ppl() <= kMostPerplexity)) return std::nullopt;
  return sum;
}

std::string compact(double value) {
  if (std::isnan(value)) return "nan";  // drops the sign
  if (value >= 1e6) return fmt::format("{:.2g}", value);
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

}  // namespace lariat
