#include <algorithm>

#include "kernels/error.h"
#include "models/positions/position_row.h"

namespace lariat {
namespace {

// A key's position is its index in its chunk of s tokens. No distance exceeds s + w - 1.
PositionMethod make_dca(const PositionValues& values, int64_t) {
  const int64_t s = values.get("chunk"), w = values.get("window"), farthest = s + w - 1;
  if (w > s) throw UsageError("the window is larger than the chunk; use a smaller window");
  const auto chunk = static_cast<int32_t>(s);
  const KeyEdge own{0, chunk}, before{-chunk, chunk};
  return {.positions = {
              [s](int64_t p, double) { return static_cast<double>(p % s); },
              [s, farthest](int64_t p, double) { return static_cast<double>(std::min(p % s + s, farthest)); },
              [farthest](int64_t, double) { return static_cast<double>(farthest); }},
          .ranges = {{own, kOwnEnd, 0}, {before, own, 1}, {kTextBegin, before, 2}}};
}

}  // namespace

// Dual chunk attention (arXiv 2402.17463). The two defaults add up to the trained length.
PositionRow dca_row() {
  return {"dca",
          {{"chunk", [](int64_t trained, int64_t) { return trained - trained / 4; }},
           {"window", [](int64_t trained, int64_t) { return trained / 4; }}},
          make_dca};
}

}  // namespace lariat
