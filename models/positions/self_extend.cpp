#include <algorithm>
#include <cmath>

#include "models/positions/position_row.h"

namespace lariat {
namespace {

// Keys before the last w are stored again at the index of their group of G.
PositionMethod make_self_extend(const PositionValues& values, int64_t trained) {
  const int64_t w = values.get("window");
  const auto stretch = far_divisor(w, values.of("group"), trained);
  const auto group_of = [](int64_t p, double group) { return p / static_cast<int64_t>(group); };
  const KeyEdge near = nearer(w);
  return {.positions = {{},
                        [=](int64_t p, double group) {
                          return static_cast<double>(group_of(p, group) + w - group_of(w, group));
                        },
                        [=](int64_t j, double group) { return static_cast<double>(group_of(j, group)); }},
          .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1, 2}},
          .stretch = [=](double length) { return std::ceil(stretch(length)); }};
}

}  // namespace

// Self-Extend (arXiv 2401.01325). Default group: brings the longest sequence into two thirds of the trained
// length, or 4.
PositionRow self_extend_row() {
  return {"self-extend",
          {{"group",
            [](int64_t trained, int64_t longest) {
              const int64_t window = trained / 4, room = std::max<int64_t>(trained * 2 / 3 - window, 1);
              return longest == 0 ? 4 : std::max<int64_t>((longest - window + room - 1) / room, 2);
            },
            {"auto"}},
           {"window", [](int64_t trained, int64_t) { return trained / 4; }}},
          make_self_extend};
}

}  // namespace lariat
