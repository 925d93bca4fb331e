#pragma once
#include <string>
#include <string_view>

#include "engine/eval/sweep_results.h"

namespace lariat {

// The pictures of a report. Colours are CSS variables of the page (report_style.h): --c0 ... --c9 for the
// scalings, --ink, --soft and --grid for text and lines, --heat for filled cells.

std::string xml_escaped(std::string_view text);

// Index of a scaling's colour: its own wherever it appears.
int colour_of(const std::string& scaling);

// Perplexity by length, one line per scaling, on log axes where the values ask for it. Labels stand at the
// lines' ends, moved apart where lines meet. width: of the picture in CSS pixels, so that text keeps its size
// on a narrow page.
std::string perplexity_chart(const SweepTable& table, int width, int height);

// Share of passkeys found by length (columns) and depth (rows) under one scaling.
std::string passkey_map(const SweepTable& table, const std::string& scaling);

}  // namespace lariat
