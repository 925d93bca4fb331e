#include "engine/eval/sweep_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/needles.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostPerplexity = 1e100;  // where it is worse a model says nothing

std::vector<double> blocks_of(const Json& record) {
  std::vector<double> blocks;
  for (const Json& sum : record.value("blocks", Json::array())) {
    if (blocks.size() < kMostBlocks) blocks.push_back(sum.is_number() ? sum.get<double>() : std::nan(""));
  }
  return blocks;
}

GrowingValue growing_value(const Json& record) {
  GrowingValue value{.label = record["scaling"], .blocks = blocks_of(record)};
  value.text_tokens = record.value("text_tokens", int64_t{0});
  value.holds = record.value("holds", int64_t{0});
  if (value.text_tokens < std::ssize(value.blocks) || value.holds < 1) value.blocks.clear();
  const double factor = number_in(record, "factor");
  if (!std::isnan(factor)) value.label += fmt::format(" ×{:g}", factor);
  for (const auto& bucket : record["positions"]) {
    const int64_t tokens = bucket["tokens"];
    const auto n = static_cast<double>(tokens);
    const double mean = number_in(bucket, "loss"), error = number_in(bucket, "stderr");
    value.positions.push_back(
        {{tokens, n * mean, n * (mean * mean + error * error * (n - 1))}, bucket["from"], bucket["to"]});
  }
  return value;
}

// --- a growing context ---

// The end of a bucket that is nearest to `position`, but not the beginning of the first.
int64_t nearest_end(const std::vector<PositionBucket>& buckets, int64_t position) {
  const auto distance = [&](const PositionBucket& bucket) { return std::abs(bucket.to - position); };
  return std::ranges::min_element(buckets, {}, distance)->to;
}

}  // namespace

// Wilson's interval.
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

std::optional<RetrievalValue> SweepTable::retrieval(const std::string& scaling, int64_t length) const {
  RetrievalValue sum;
  for (const double depth : depths) {
    if (const auto* value = find_cell(passkey, {scaling, length, depth})) sum += *value;
  }
  if (sum.trials == 0) return std::nullopt;
  return sum;
}

SweepTable tabulate(const SweepRecords& log) {
  const Json& header = log.header;
  SweepTable table;
  table.original_ctx = header["original_ctx"];
  const bool by_task = header["passkey"].contains("tasks");
  table.scalings =
      (by_task ? header["passkey"]["tasks"] : header["scalings"]).get<std::vector<std::string>>();
  table.lengths = header["lengths"].get<std::vector<int64_t>>();
  table.depths = header["passkey"]["depths"].get<std::vector<double>>();
  table.trials = header["passkey"]["trials"].get<int64_t>() * std::ssize(table.depths);
  table.task = needle_task(header["passkey"].value("task", "passkey")).value_or(NeedleTask::kPasskey);
  if (header["growing"]["measured"]) table.growing_columns = header["growing"]["columns"];
  for (const auto& record : log.records) {
    const std::pair<std::string, int64_t> cell(record.value(by_task ? "task" : "scaling", ""),
                                               record["length"]);
    if (record["kind"] == "perplexity") {
      PerplexityValue value{number_in(record, "ppl"), number_in(record, "stderr"), record["tokens"],
                            blocks_of(record)};
      if (!(value.standard_error >= 0 && value.standard_error <= kMostPerplexity))
        value.standard_error = std::nan("");
      if (value.ppl >= 0.5 && value.ppl <= kMostPerplexity) table.perplexity[cell] = value;
    } else if (record["kind"] == "passkey") {
      const bool in_parts = record.value("recall", Json()).is_number();
      table.passkey[{cell.first, cell.second, record["depth"]}] = {
          record["trials"], record[in_parts ? "recall" : "correct"], in_parts};
    } else if (record["kind"] == "growing") {
      if (cell.second == table.lengths.back()) table.growing[cell.first] = growing_value(record);
    } else if (record["kind"] == "speed") {
      const Json timing = record.value("timing", Json());
      table.speed[cell] = {number_in(timing, "prefill_tok_s"), number_in(timing, "decode_tok_s"),
                           record["cache_bytes"]};
    }
  }
  return table;
}

std::vector<PositionRange> growing_ranges(const SweepTable& table) {
  for (const auto& column : table.growing_columns) {
    const GrowingValue* value = find_cell(table.growing, column);
    if (value == nullptr || value->positions.empty()) continue;
    const auto& buckets = value->positions;
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

std::optional<LossSum> growing_sum(const SweepTable& table, const std::string& column,
                                   const PositionRange& range) {
  const GrowingValue* value = find_cell(table.growing, column);
  if (value == nullptr) return std::nullopt;
  LossSum sum;
  for (const auto& bucket : value->positions) {
    if (bucket.from >= range.from && bucket.to <= range.to && bucket.tokens > 0) sum += bucket;
  }
  if (!(sum.ppl() >= 0.5 && sum.ppl() <= kMostPerplexity)) return std::nullopt;
  return sum;
}

double number_in(const Json& record, const char* key) {
  return record.contains(key) && record[key].is_number() ? record[key].get<double>() : std::nan("");
}

std::string compact(double value) {
  if (std::isnan(value)) return "nan";  // whose sign would be printed
  if (value >= 1e6) return fmt::format("{:.2g}", value);
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

}  // namespace lariat
