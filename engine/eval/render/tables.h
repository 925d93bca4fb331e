#pragma once
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

// Tables of results, for a terminal and for the report's page.
namespace lariat {

struct TableCell {
  std::string value{}, error{};  // empty value: not measured
  bool best = false;             // the verdict shows this column to be best
};
struct TableRow {
  Column column;
  std::string label;
  std::vector<TableCell> cells{};
};
struct ResultTable {
  std::string first;  // above the labels
  std::vector<std::string> heads{};
  std::vector<TableRow> rows{};
};
ResultTable growing_table(const SweepTable& table);
ResultTable perplexity_table(const SweepTable& table);
ResultTable speed_table(const SweepTable& table);

// Columns aligned right (the first: left), two spaces between.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);
// Share found by depth (rows) and length (columns) in one column; over all depths with Wilson's interval of
// 95 %.
std::string heat_map(const SweepTable& table, const Column& column);
// All tables of a sweep and its conclusions; with all paired differences if asked for.
std::string tables_text(const SweepTable& table, bool differences);

}  // namespace lariat
