#include <limits>

#include "models/positions/position_row.h"

namespace lariat {
namespace {

// Keys before the last w are stored again: unrotated, all at distance w, or with k at 1/k of their positions,
// which adds 1/k of the distance beyond w.
PositionMethod make_rerope(const PositionValues& values, int64_t trained) {
  const int64_t window = values.get("window");
  const auto w = static_cast<double>(window);
  const KeyEdge near = nearer(window);
  PositionMethod method{
      .positions = {{},
                    [=](int64_t p, double k) { return static_cast<double>(p) / k + w - w / k; },
                    [](int64_t j, double k) { return static_cast<double>(j) / k; }},
      .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1, 2}},
      .stretch = [](double) { return std::numeric_limits<double>::infinity(); }};
  if (values.has("k")) method.stretch = far_divisor(window, values.of("k"), trained);
  return method;
}

}  // namespace

// ReRoPE and leaky ReRoPE (github.com/bojone/rerope).
PositionRow rerope_row() {
  return {"rerope",
          {{"window", [](int64_t trained, int64_t) { return trained / 4; }}, {"k", nullptr, {"auto"}}},
          make_rerope};
}

}  // namespace lariat
