#pragma once
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/eval/measurement.h"

namespace lariat {

// A page of HTML that needs nothing else (engine/eval/report.html): its script draws the JSON that is put
// into it, as tables, heat maps and curves, readable in light and dark, on a phone and on paper. Parts that
// were not measured are left out.
//
// results: records as of a sweep's log, where kind is "passkey" and scaling the first one if they are
// missing; sweep: what the header of such a log says of how they were measured; hidden: what passkeys are, in
// a sentence; ranges: of a growing context; conclusions: the sentences of the verdict, if there are any. What
// else there is stands in the page, and is not drawn.
std::string report_page(const nlohmann::ordered_json& data);
// Puts into such data what the page shows and lets its reader save: the pictures of the records and their
// CSV.
void add_pictures(nlohmann::ordered_json& data, const Measurements& log);
// The pictures as files of `folder`, which is made if it is not there: growing.svg, perplexity.svg and
// found-SCALING.svg.
void write_pictures(const Measurements& log, const std::filesystem::path& folder);

// The results of a sweep as one object, which `lariat sweep --json` prints.
nlohmann::ordered_json sweep_json(const Measurements& log);
// The page of a sweep: the same bytes for the same results, in whatever order and however fast they came.
std::string sweep_report(Measurements log);

}  // namespace lariat
