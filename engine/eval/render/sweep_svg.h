#pragma once
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

namespace lariat {

// Figure of a sweep's results as SVG with the classes of kSweepSvgStyle. The report page sets screen colours,
// svg_file() print colours.
struct SweepPicture {
  std::string name;    // file name without extension
  std::string column;  // passkeys: the scaling; otherwise empty
  std::string wide;
  std::string narrow;  // for phones; empty: same as wide
};

// CSS class of a column's colour: the scaling's own, or for a method one that no scaling of the sweep uses.
std::string colour_of(const SweepTable& table, const Column& column);

// Figures of all results: perplexity by position in a growing context, perplexity by length, both also as
// ratios to the view's column, and per scaling the share found by length and depth.
std::vector<SweepPicture> sweep_pictures(const SweepTable& table);

extern const std::string_view kSweepSvgStyle;
// A figure as a standalone file.
std::string svg_file(const std::string& picture);

}  // namespace lariat
