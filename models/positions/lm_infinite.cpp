#include "models/positions/position_row.h"

namespace lariat {
namespace {

// The last w keys, and the first n before them, stored again unrotated, at distance w.
PositionMethod make_lm_infinite(const PositionValues& values, int64_t) {
  const int64_t n = values.get("sinks"), w = values.get("window");
  KeyEdge sinks_end = nearer(w);
  sinks_end.most = static_cast<int32_t>(n);
  return {
      .positions = {
          {}, [w](int64_t, double) { return static_cast<double>(w); }, [](int64_t, double) { return 0.0; }},
      .ranges = {{nearer(w), kOwnEnd, 0}, {kTextBegin, sinks_end, 1, 2}}};
}

}  // namespace

// LM-Infinite (arXiv 2308.16137), with its number of sinks for Llama 2.
PositionRow lm_infinite_row() {
  return {"lm-infinite",
          {{"sinks", [](int64_t, int64_t) { return int64_t{10}; }},
           {"window", [](int64_t trained, int64_t) { return trained; }}},
          make_lm_infinite};
}

}  // namespace lariat
