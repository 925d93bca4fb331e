#include <algorithm>

#include "kernels/error.h"
#include "models/positions/position_row.h"

namespace lariat {
namespace {

// Keys from distance S on appear to begin at distance W.
PositionMethod make_string(const PositionValues& values, int64_t) {
  const int64_t shift = values.get("shift"), window = values.get("window");
  if (window > shift) throw UsageError("the window is larger than the shift; use a smaller window");
  const KeyEdge near = nearer(shift);
  return {.positions = {{}, [=](int64_t p, double) { return static_cast<double>(p - shift + window); }},
          .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1}}};
}

constexpr int64_t kStringWindow = 128;

}  // namespace

// STRING (arXiv 2410.18745). Shift: a third of the trained length, as in the paper, or enough to keep all
// distances below that length.
PositionRow string_row() {
  return {"string",
          {{"shift",
            [](int64_t trained, int64_t longest) {
              return std::clamp(longest - trained + kStringWindow, std::max(trained / 3, kStringWindow),
                                std::max(trained, kStringWindow));
            }},
           {"window", [](int64_t, int64_t) { return kStringWindow; }}},
          make_string};
}

}  // namespace lariat
