#pragma once
#include <fstream>
#include <limits>
#include <string>

#include "kernels/tensor.h"
#include "tests/limit_targets.h"
#include "tests/test_util.h"

// What docs/processors.md promises of the bits of a row.
namespace lariat::test {

// The cell of an op and its weights under a heading.
inline std::string bits_cell(const std::string& op, std::string_view weights, const std::string& heading) {
  const auto listed = [](const std::string& names, std::string_view name) {
    return (names + ",").find(std::string(name) + ",") == 0 ||
           (names + ",").find(" " + std::string(name) + ",") != std::string::npos;
  };
  std::ifstream page(std::filesystem::path(LARIAT_SOURCE_DIR) / "docs" / "processors.md");
  size_t column = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("|")) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells[0] == "op") column = static_cast<size_t>(std::ranges::find(cells, heading) - cells.begin());
    if (cells[0] == op && listed(cells[1], weights)) return cells.at(column);
  }
  throw std::runtime_error("docs/processors.md has no " + op + " of " + std::string(weights));
}

// The same on the processor that runs this.
inline std::string bits_here(const std::string& op, std::string_view weights) {
  return bits_cell(op, weights, kProcessors[static_cast<int>(this_processor())]);
}

// How many rows have the bits of a row alone; beyond that many, they have those of any other such number.
inline int64_t rows_alike(const std::string& op, std::string_view weights) {
  const std::string cell = bits_here(op, weights);
  return cell == "any" ? std::numeric_limits<int64_t>::max() : std::stoll(cell);
}
inline int64_t rows_alike(const std::string& op, DType weights) { return rows_alike(op, name_of(weights)); }

}  // namespace lariat::test
