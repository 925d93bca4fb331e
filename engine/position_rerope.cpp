#include "engine/position_methods.h"

namespace lariat {
namespace {

// The last w keys as they are. Those before them, stored a second time: unrotated, so that all are at
// distance w, or with k at a k-th of their positions, which adds a k-th of what the distance has beyond w.
PositionMethod make_rerope(std::span<const int64_t> values) {
  const auto w = static_cast<double>(values[0]);
  const double slope = values[1] == 0 ? 0.0 : 1.0 / static_cast<double>(values[1]);
  const KeyEdge near = nearer(values[0]);
  return {.positions = {{},
                        [=](int64_t p) { return static_cast<double>(p) * slope + w - w * slope; },
                        [=](int64_t j) { return static_cast<double>(j) * slope; }},
          .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1, 2}}};
}

}  // namespace

// ReRoPE and its leaky form (github.com/bojone/rerope).
PositionRow rerope_row() {
  return {"rerope",
          {{"window", [](int64_t trained, int64_t) { return trained / 4; }}, {"k", nullptr}},
          make_rerope};
}

}  // namespace lariat
