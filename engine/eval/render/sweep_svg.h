#pragma once
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

namespace lariat {

// A picture of a sweep's results, as SVG that has the classes of kSweepSvgStyle and no colours of its own:
// the report's page gives it those of its reader, svg_file() those of print.
struct SweepPicture {
  std::string name;    // of a file, without its ending
  std::string column;  // of passkeys: the scaling; else empty
  std::string wide;
  std::string narrow;  // for a telephone; empty: as wide
};

// The class of a column's colour: of a scaling its own, of a method one that no scaling of the sweep has.
std::string colour_of(const SweepTable& table, const Column& column);

// Pictures of all results: perplexity by position in a growing context, perplexity by length, both
// as ratios to the view's column, and for each scaling what was found by length and depth.
std::vector<SweepPicture> sweep_pictures(const SweepTable& table);

extern const std::string_view kSweepSvgStyle;
// A picture as a file of its own.
std::string svg_file(const std::string& picture);

}  // namespace lariat
