#include "engine/eval/render/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/verdict.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

TableCell with_error(double value, double error) {
  return {compact(value), std::isfinite(error) ? compact(error) : ""};
}

void mark(ResultTable& results, const Standing& standing, size_t cell) {
  for (TableRow& row : results.rows) row.cells[cell].best = std::ranges::count(standing.best, row.column) > 0;
}

template <class Cells, class Cell>
ResultTable by_length(const SweepTable& table, const std::string& first, const Cells& cells,
                      const Cell& cell_of) {
  ResultTable results{first};
  for (const int64_t length : table.lengths) results.heads.push_back(std::to_string(length));
  for (const Column& column : table.columns) {
    TableRow& row = results.rows.emplace_back(TableRow{column, column.name()});
    for (const int64_t length : table.lengths) {
      const auto* value = find_cell(cells, {column, length});
      row.cells.push_back(value != nullptr ? cell_of(*value) : TableCell());
    }
  }
  return results;
}

std::string text_of(const ResultTable& results) {
  std::vector<std::vector<std::string>> rows = {{results.first}};
  rows[0].insert(rows[0].end(), results.heads.begin(), results.heads.end());
  for (const TableRow& row : results.rows) {
    rows.push_back({row.label});
    for (const auto& [value, error, best] : row.cells)
      rows.back().push_back(value.empty() ? "-" : error.empty() ? value : value + " ± " + error);
  }
  return aligned_table(rows) + "\n";
}

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

// A share as a block (darker: larger) with its counts: "██ 5/5", "▒▒ 2/5", "▓▓ 3.8/5".
std::string heat_block(const RetrievalValue& value) {
  static constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
  const double share = value.share();
  const int shade = share >= 1 ? 4 : share <= 0 ? 0 : 1 + static_cast<int>(share * 3);
  return fmt::format("{0}{0} {1:.{2}f}/{3}", kShades[shade], value.found, value.in_parts ? 1 : 0,
                     value.trials);
}

}  // namespace

ResultTable growing_table(const SweepTable& table) {
  const auto ranges = growing_ranges(table);
  ResultTable results{"growing"};
  for (const Column& column : table.growing_columns) {
    const auto* grown = find_cell(table.growing, column);
    if (grown == nullptr) continue;
    TableRow& row = results.rows.emplace_back(TableRow{column, grown->label});
    for (const PositionRange& range : ranges) {
      const auto sum = growing_sum(table, column, range);
      row.cells.push_back(sum ? with_error(sum->ppl(), sum->standard_error()) : TableCell());
    }
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    results.heads.push_back(ranges[i].name());
    mark(results, by_growing(table, ranges[i]), i);
  }
  return results;
}

ResultTable perplexity_table(const SweepTable& table) {
  ResultTable results = by_length(table, "perplexity", table.perplexity,
                                  [](const Loss& value) { return with_error(value.ppl, value.error); });
  for (size_t i = 0; i < table.lengths.size(); ++i) mark(results, by_perplexity(table, table.lengths[i]), i);
  return results;
}

ResultTable speed_table(const SweepTable& table) {
  return by_length(table, "prompt / decode tokens/s, cache", table.speed, [](const SpeedValue& value) {
    return TableCell{fmt::format("{} / {}, {} MiB", compact(value.prefill_tok_s), compact(value.decode_tok_s),
                                 compact(static_cast<double>(value.cache_bytes) / (1 << 20)))};
  });
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int64_t> widths;  // terminal columns
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], count_chars(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(static_cast<size_t>(widths[i] - count_chars(row[i])), ' ');
      line += (i == 0 ? row[i] + space : "  " + space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string heat_map(const SweepTable& table, const RetrievalMap& map) {
  std::vector<std::vector<std::string>> rows = {{"depth"}};
  for (const int64_t length : table.lengths) rows[0].push_back(std::to_string(length));
  for (const double depth : table.depths) {
    rows.push_back({fmt::format("{:.0f} %", 100 * depth)});
    for (const int64_t length : table.lengths) {
      const auto* value = find_cell(table.passkey, {map.column, map.task, length, depth});
      rows.back().push_back(value ? heat_block(*value) : "-");
    }
  }
  rows.push_back({"all"});
  for (const int64_t length : table.lengths) {
    const auto value = table.retrieval(map.column, map.task, length);
    if (!value) {
      rows.back().emplace_back("-");
      continue;
    }
    const auto [low, high] = value->interval();
    rows.back().push_back(
        fmt::format("{:.0f} % ({:.0f}–{:.0f})", 100 * value->share(), 100 * low, 100 * high));
  }
  return aligned_table(rows);
}

std::string tables_text(const SweepTable& table, bool with_differences) {
  std::string text;
  if (!table.growing.empty()) text += text_of(growing_table(table));
  if (!table.perplexity.empty()) text += text_of(perplexity_table(table));
  if (!table.passkey.empty()) {
    for (const RetrievalMap& map : retrieval_maps(table))
      text += fmt::format("{}, {}\n{}\n", needles_noun(map.task), map.column.name(), heat_map(table, map));
  }
  if (!table.speed.empty()) text += text_of(speed_table(table));
  if (with_differences) {
    const std::vector<Difference> all = differences(table);
    for (const Kind kind : {Kind::kGrowing, Kind::kPerplexity, Kind::kPasskey})
      text += difference_rows(all, kind);
    text += "*: shown at 1 %, over all differences (Holm)\n\n";
  }
  for (const auto& sentence : conclusions(table)) text += sentence + "\n";
  return text;
}

}  // namespace lariat
