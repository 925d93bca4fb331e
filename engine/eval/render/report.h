#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/eval/measurement.h"

namespace lariat {

extern const std::string_view kReportStyle;

// An HTML page without scripts that loads nothing: tables, heat maps and curves of the measurements, readable
// in light and dark, on a phone and on paper. The element "data" holds sweep_json(log), updated with `more`,
// as JSON for programs. The page has the same bytes for the same results, in any order and at any speed.
std::string report_page(Measurements log,
                        const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
// Writes the pictures of the page to files of `folder`, which is created if it is missing: growing.svg,
// perplexity.svg and found-COLUMN.svg.
void write_pictures(const Measurements& log, const std::filesystem::path& folder);

// The results of a sweep as one object, which `lariat sweep --json` prints.
nlohmann::ordered_json sweep_json(const Measurements& log);

}  // namespace lariat
