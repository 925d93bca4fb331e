#include <algorithm>

#include "models/positions/position_row.h"

namespace lariat {
namespace {

// The last w keys, and the first n as if right before them.
PositionMethod make_sinks(const PositionValues& values, int64_t) {
  const int64_t n = values.get("sinks"), w = values.get("window"), farthest = n + w - 1;
  KeyEdge sinks_end = nearer(w);
  sinks_end.most = static_cast<int32_t>(n);
  return {
      .positions = {{}, [farthest](int64_t p, double) { return static_cast<double>(std::min(p, farthest)); }},
      .ranges = {{nearer(w), kOwnEnd, 0}, {kTextBegin, sinks_end, 1}}};
}

}  // namespace

// StreamingLLM (arXiv 2309.17453).
PositionRow sinks_row() {
  return {"sinks",
          {{"sinks", [](int64_t, int64_t) { return int64_t{4}; }},
           {"window", [](int64_t trained, int64_t) { return trained - 4; }}},
          make_sinks};
}

}  // namespace lariat
