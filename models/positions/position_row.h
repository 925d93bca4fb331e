#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "models/spec/position_method.h"

namespace lariat {

// Default that is the key's first word. "auto" follows the length.
inline constexpr int64_t kFirstWord = -1;

struct PositionKey {
  // kWhole and kReal: a number from 1 on, or a word; kList: numbers A,B,... in place of the key before it.
  enum class Kind : uint8_t { kWhole, kReal, kList, kWord };

  std::string_view name;
  // Default; nullptr: the key is unset.
  int64_t (*usual)(int64_t trained, int64_t longest);
  std::vector<std::string_view> words{};
  Kind kind = Kind::kWhole;
};

// Numbers or a word; neither: unset.
struct PositionValue {
  std::vector<double> numbers{};
  std::string_view word{};
};

// Values of a method by the names of its keys.
class PositionValues {
 public:
  // Returns false if the key has a value.
  bool add(std::string_view key, PositionValue value) {
    return values_.emplace(key, std::move(value)).second;
  }
  bool has(std::string_view key) const { return values_.contains(key); }
  const PositionValue& of(std::string_view key) const { return values_.at(key); }
  int64_t get(std::string_view key) const { return static_cast<int64_t>(of(key).numbers.at(0)); }
  std::string_view word(std::string_view key) const { return of(key).word; }

 private:
  std::map<std::string_view, PositionValue> values_;
};

struct PositionRow {
  std::string_view name;
  std::vector<PositionKey> keys;
  // Throws UsageError without the method's name.
  PositionMethod (*make)(const PositionValues& values, int64_t trained);
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

// Divisor of distances beyond a window: a number, or for a word the divisor, at least 1, that brings the
// farthest key to the trained length. Throws UsageError if the window is not below the trained length.
std::function<double(double length)> far_divisor(int64_t window, const PositionValue& value, int64_t trained);

}  // namespace lariat
