#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/eval/sweep_table.h"

namespace lariat {

extern const std::string_view kReportStyle;

// A self-contained HTML page without scripts, for light and dark mode, phones and paper. The element "data"
// holds sweep_json(log, table), updated with `more`. Equal results yield identical bytes, whatever their
// order and timing. table: tabulate(log).
std::string report_page(Measurements log, const SweepTable& table,
                        const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
// Writes growing.svg, perplexity.svg and found-COLUMN.svg to `folder`, creating it if missing.
void write_pictures(const SweepTable& table, const std::filesystem::path& folder);

// Printed by `lariat sweep --json`.
nlohmann::ordered_json sweep_json(const Measurements& log, const SweepTable& table);

}  // namespace lariat
