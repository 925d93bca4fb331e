#pragma once
#include <algorithm>
#include <span>

#include "kernels/step.h"

namespace lariat {

// Keys that tokens see with queries rotated by table `table`: 0 is the keys' table, others follow the model's
// RoPE tables. second_keys > 0: second keys (KvLayer), rotated by that table: 2 in every method, as one table
// serves all sequences of a step.
struct VisibleRange {
  KeyEdge begin, end;
  size_t table = 0, second_keys = 0;
  bool operator==(const VisibleRange&) const = default;
};

inline size_t second_keys_of(std::span<const VisibleRange> ranges) {
  size_t table = 0;
  for (const VisibleRange& range : ranges) table = std::max(table, range.second_keys);
  return table;
}

}  // namespace lariat
