#pragma once
#include <algorithm>
#include <span>

#include "kernels/step.h"

namespace lariat {

// Keys that tokens see with their queries rotated by table number `table`: 0 is the table of the keys, others
// follow the tables of the model's RoPEs. second_keys > 0: the second keys (KvLayer), rotated by that table;
// its number is 2 in every method, as one table serves all sequences of a step.
struct VisibleRange {
  KeyEdge begin, end;
  size_t table = 0, second_keys = 0;
  bool operator==(const VisibleRange&) const = default;
};

// The table of the second keys among the ranges; 0: no range has any.
inline size_t second_keys_of(std::span<const VisibleRange> ranges) {
  size_t table = 0;
  for (const VisibleRange& range : ranges) table = std::max(table, range.second_keys);
  return table;
}

}  // namespace lariat
