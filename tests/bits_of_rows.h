#pragma once
#include <cstdint>
#include <limits>

#include "kernels/tensor.h"
#include "tests/limit_targets.h"

// Rows that are bitwise identical to single rows on this processor; larger numbers of rows are identical to
// each other (docs/accuracy.md).
namespace lariat::test {

inline constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

// bf16 weights and compute on AMX.
inline bool has_tiles(DType weights, DType compute) {
  return weights == DType::kBF16 && compute == DType::kBF16 && this_processor() == cpu::Processor::kAmx;
}
// integers: q8 and q4 weights.
inline int64_t linear_rows_alike(bool integers) {
  return integers && this_processor() != cpu::Processor::kAmx ? kAnyRows : 8;
}
inline int64_t grouped_linear_rows_alike(bool integers) { return integers ? kAnyRows : 8; }

// Tokens times query heads per KV head.
inline constexpr int64_t kAttentionRowsAlike = 23;
// Threads split longer contexts.
inline constexpr int64_t kThreadsChangeBitsFrom = 512;
// Chunks of this size prefill bitwise identically to one shot.
inline constexpr int64_t kPrefillChunkAlike = 24;

}  // namespace lariat::test
