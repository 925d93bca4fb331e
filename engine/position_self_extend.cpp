#include <algorithm>

#include "engine/position_methods.h"

namespace lariat {
namespace {

// The last w keys as they are; those before them, stored a second time, by the group of G that they are in.
PositionMethod make_self_extend(std::span<const int64_t> values) {
  const int64_t group = values[0], w = values[1];
  const KeyEdge near = nearer(w);
  return {.positions = {{},
                        [=](int64_t p) { return static_cast<double>(p / group + w - w / group); },
                        [=](int64_t j) { return static_cast<double>(j / group); }},
          .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1, 2}}};
}

}  // namespace

// Self-Extend (arXiv 2401.01325). A quarter of the trained length, and the group that brings the longest
// sequence into two thirds of it, or 4.
PositionRow self_extend_row() {
  return {"self-extend",
          {{"group",
            [](int64_t trained, int64_t longest) {
              const int64_t window = trained / 4, room = std::max<int64_t>(trained * 2 / 3 - window, 1);
              return longest == 0 ? 4 : std::max<int64_t>((longest - window + room - 1) / room, 2);
            }},
           {"window", [](int64_t trained, int64_t) { return trained / 4; }}},
          make_self_extend};
}

}  // namespace lariat
