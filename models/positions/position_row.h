#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "models/positions/position_method.h"

namespace lariat {

// Value of a key's first word. "auto" follows the length.
inline constexpr int64_t kAuto = -1;

struct PositionKey {
  std::string_view name;
  // Default; nullptr: 0, which means none.
  int64_t (*usual)(int64_t trained, int64_t longest);
  std::vector<std::string_view> words{};  // for the values kAuto, kAuto - 1, ...
  bool numbers = true;                    // false: only words
  bool factors = false;                   // A,B,...: its value is their number; replaces the key before it
};

struct PositionRow {
  std::string_view name;
  std::vector<PositionKey> keys;
  // One value per key: at least 1, or the value of a word; 0: none. Throws UsageError without the method's
  // name.
  PositionMethod (*make)(std::span<const int64_t> values, int64_t trained, std::span<const double> factors);
};

PositionRow dca_row();
PositionRow string_row();
PositionRow sinks_row();
PositionRow self_extend_row();
PositionRow rerope_row();
PositionRow lm_infinite_row();
PositionRow jet_long_row();
PositionRow jet_long_freq_row();

// Edges of ranges. nearer(d): between the keys at distances d and d - 1.
inline constexpr KeyEdge kTextBegin{0, 1, 0, 0};
inline KeyEdge nearer(int64_t d) { return {.offset = static_cast<int32_t>(1 - d)}; }
inline constexpr KeyEdge kOwnEnd{1};
// PositionMethod::unstretched with second keys: all keys at their own distance, and an empty range to keep
// storing second keys.
inline std::vector<VisibleRange> unstretched_ranges() {
  return {{kTextBegin, kOwnEnd, 0}, {kTextBegin, kTextBegin, 1, 2}};
}

// Divisor of distances beyond a window: `value`, or for kAuto the divisor, at least 1, that brings the
// farthest key to the trained length. Throws UsageError if the window is not below the trained length.
std::function<double(double length)> stretch_behind(int64_t window, int64_t value, int64_t trained);

}  // namespace lariat
