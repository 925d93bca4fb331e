#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "engine/eval/verdict.h"
#include "tools/measuring.h"

// The tables of a sweep on stdout.
namespace lariat {
namespace {

// A table with a row for each scaling and a column for each length.
template <class Cells, class Text>
std::string rows_by_length(const SweepTable& table, const std::string& title, const Cells& cells,
                           const Text& text_of) {
  std::vector<std::vector<std::string>> rows = {{title}};
  for (const int64_t length : table.lengths) rows[0].push_back(std::to_string(length));
  for (const Column& column : table.columns) {
    rows.push_back({column.name()});
    for (const int64_t length : table.lengths) {
      const auto* value = find_cell(cells, {column, length});
      rows.back().push_back(value ? text_of(*value) : "-");
    }
  }
  return aligned_table(rows);
}

std::string with_error(double value, double error) {
  return compact(value) + (std::isfinite(error) ? " ± " + compact(error) : "");
}

std::string perplexity_rows(const SweepTable& table) {
  return rows_by_length(table, "perplexity", table.perplexity,
                        [](const Loss& value) { return with_error(value.ppl, value.error); });
}

std::string growing_rows(const SweepTable& table) {
  const auto ranges = growing_ranges(table);
  std::vector<std::vector<std::string>> rows = {{"growing"}};
  for (const auto& range : ranges) rows[0].push_back(range.name());
  for (const Column& column : table.growing_columns) {
    const auto* grown = find_cell(table.growing, column);
    if (grown == nullptr) continue;
    rows.push_back({grown->label});
    for (const auto& range : ranges) {
      const auto sum = growing_sum(table, column, range);
      rows.back().push_back(sum ? with_error(sum->ppl(), sum->standard_error()) : "-");
    }
  }
  return aligned_table(rows);
}

std::string speed_rows(const SweepTable& table) {
  const char* title = "prompt / decode tokens/s, cache";
  return rows_by_length(table, title, table.speed, [](const SpeedValue& value) {
    return fmt::format("{} / {}, {} MiB", compact(value.prefill_tok_s), compact(value.decode_tok_s),
                       compact(static_cast<double>(value.cache_bytes) / (1 << 20)));
  });
}

// A row for each pair of columns and a column for each length or range of positions.
std::string difference_rows(const std::vector<Difference>& all, Kind kind) {
  std::vector<std::vector<std::string>> rows = {{fmt::format("differences, {}", name_of(kind))}};
  for (const Difference& difference : all) {
    if (difference.kind != kind) continue;
    const std::string pair = difference.b.name() + " than " + difference.a.name(),
                      place = difference.range ? difference.range->name() : std::to_string(difference.length);
    if (std::ranges::find(rows[0], place) == rows[0].end()) rows[0].push_back(place);
    auto row = std::ranges::find(rows, pair, [](const auto& cells) { return cells[0]; });
    if (row == rows.end()) row = rows.insert(rows.end(), {pair});
    row->resize(rows[0].size(), "-");
    row->back() = text_of(difference);
  }
  for (auto& row : rows) row.resize(rows[0].size(), "-");
  return rows.size() > 1 ? aligned_table(rows) + "\n" : "";
}

}  // namespace

void print_tables(const SweepTable& table, bool with_differences) {
  std::string text;
  if (!table.growing.empty()) text += growing_rows(table) + "\n";
  if (!table.perplexity.empty()) text += perplexity_rows(table) + "\n";
  if (!table.passkey.empty()) {
    for (const Column& column : table.columns)
      text += fmt::format("{}, {}\n{}\n", things_of(table.task), column.name(), heat_map(table, column));
  }
  if (!table.speed.empty()) text += speed_rows(table) + "\n";
  if (with_differences) {
    const std::vector<Difference> all = differences(table);
    for (const Kind kind : {Kind::kGrowing, Kind::kPerplexity, Kind::kPasskey})
      text += difference_rows(all, kind);
    text += "*: shown at 99 %\n\n";
  }
  for (const auto& sentence : conclusions(table)) text += sentence + "\n";
  std::cout << text << std::flush;
}

}  // namespace lariat
