#include <cmath>

#include "models/positions/position_row.h"

namespace lariat {
namespace {

// Keys up to distance w keep their distance. Farther keys use their second copy, at the distance between
// groups of G tokens.
PositionMethod make_jet_long(const PositionValues& values, int64_t trained) {
  const KeyEdge near = nearer(values.get("window") + 1);
  const auto group_of = [](int64_t p, double group) {
    const int64_t number = p / static_cast<int64_t>(group);
    return static_cast<double>(number);
  };
  const auto stretch = far_divisor(0, values.of("group"), trained);
  return {.positions = {{}, group_of, group_of},
          .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1, 2}},
          .unstretched = unstretched_ranges(),
          .stretch = [=](double length) { return std::ceil(stretch(length)); }};
}

}  // namespace

// Jet-Long (arXiv 2607.07740). The default window is the paper's for a trained length of 32,768.
PositionRow jet_long_row() {
  return {"jet-long",
          {{"window", [](int64_t trained, int64_t) { return trained / 16; }},
           {"group", [](int64_t, int64_t) { return kFirstWord; }, {"auto"}}},
          make_jet_long};
}

}  // namespace lariat
