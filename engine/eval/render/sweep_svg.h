#pragma once
#include <string>
#include <vector>

#include "engine/eval/sweep_table.h"

namespace lariat {

// SVG with the classes of kSweepSvgStyle. The report page sets screen colours, svg_file() print colours.
struct SweepPicture {
  std::string name;  // file name without extension
  std::string map;   // passkeys: RetrievalMap::name; otherwise empty
  std::string wide;
  std::string narrow;  // for phones; empty: as wide
};

// CSS class: the scaling's own, or for a method one that no scaling of the sweep uses.
std::string colour_of(const SweepTable& table, const Column& column);

// Perplexity by position and by length, both also as ratios to the view's column, and per scaling the share
// found by length and depth.
std::vector<SweepPicture> sweep_pictures(const SweepTable& table);

extern const std::string_view kSweepSvgStyle;
// As a standalone file.
std::string svg_file(const std::string& picture);

}  // namespace lariat
