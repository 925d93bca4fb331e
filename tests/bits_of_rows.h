#pragma once
#include <cstdint>
#include <limits>

#include "kernels/tensor.h"
#include "tests/limit_targets.h"

// The number of rows up to which a row is bitwise identical to the row alone, on this processor. Products of
// more rows agree bitwise with each other. docs/accuracy.md has the same numbers for users.
namespace lariat::test {

inline constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

// Weights in bf16 that are computed in bf16 on AMX.
inline bool has_tiles(DType weights, DType compute) {
  return weights == DType::kBF16 && compute == DType::kBF16 && this_processor() == cpu::Processor::kAmx;
}
// integers: weights whose codes are integers, q8 and q4.
inline int64_t linear_rows_alike(bool integers) {
  return integers && this_processor() != cpu::Processor::kAmx ? kAnyRows : 8;
}
inline int64_t grouped_linear_rows_alike(bool integers) { return integers ? kAnyRows : 8; }

// Tokens times query heads for each KV head.
inline constexpr int64_t kAttentionRowsAlike = 23;
// Threads share out the positions of contexts that are longer.
inline constexpr int64_t kThreadsChangeBitsFrom = 512;
// A prefill in chunks of at least this many tokens has the bits of one shot.
inline constexpr int64_t kPrefillChunkAlike = 24;

}  // namespace lariat::test
