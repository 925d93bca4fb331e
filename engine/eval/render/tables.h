#pragma once
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

// Tables of results for terminals and the report page.
namespace lariat {

struct TableCell {
  std::string value{}, error{};  // empty value: not measured
  bool best = false;             // shown to be best (verdict.h)
};
struct TableRow {
  Column column;
  std::string label;
  std::vector<TableCell> cells{};
};
struct ResultTable {
  std::string first;  // header of the label column
  std::vector<std::string> heads{};
  std::vector<TableRow> rows{};
};
ResultTable growing_table(const SweepTable& table);
ResultTable perplexity_table(const SweepTable& table);
ResultTable speed_table(const SweepTable& table);

// Right-aligned columns (the first: left).
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);
// Share found by depth (rows) and length (columns), and over all depths with a 95 % Wilson interval.
std::string heat_map(const SweepTable& table, const RetrievalMap& map);
// Optionally with all paired differences.
std::string tables_text(const SweepTable& table, bool differences);

}  // namespace lariat
