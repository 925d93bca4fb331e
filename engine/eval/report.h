#pragma once
#include <string>

#include "engine/eval/sweep_results.h"

namespace lariat {

// The results as one HTML page that needs nothing else: style and pictures (SVG) stand inside, no scripts.
// Readable in light and dark, on a phone and on paper. Made of the table alone: the same table gives the same
// bytes. Parts that were not measured are left out.
std::string html_report(const SweepTable& table);

}  // namespace lariat
