#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/team.h"

namespace lariat {

// Splits [0, count) into equal ranges of at least `grain` items, one per thread, and runs body(first, last).
// A single range runs on the caller's thread.
template <class Body>
void for_ranges(int threads, int64_t count, int64_t grain, const Body& body) {
  const int64_t ranges = std::clamp<int64_t>(count / grain, 1, threads);
  if (ranges == 1) {
    body(int64_t{0}, count);
    return;
  }
  run_team(static_cast<int>(ranges), [&](int r) { body(count * r / ranges, count * (r + 1) / ranges); });
}

// Runs body(task, worker) for every task in [0, count), worker < threads. Idle threads take the next task in
// order: the largest tasks should come first.
template <class Body>
void for_tasks(int threads, int64_t count, const Body& body) {
  const auto team = static_cast<int>(std::min<int64_t>(threads, count));
  if (team <= 1) {
    for (int64_t task = 0; task < count; ++task) body(task, 0);
    return;
  }
  alignas(64) std::atomic<int64_t> next{0};  // on its own cache line
  run_team(team, [&](int worker) {
    for (int64_t task = 0; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(task, worker);
  });
}

// Team size for `products` multiply-adds; `each`: the number worth waking a thread, three microseconds.
inline int team_for(int64_t products, int64_t each, int threads) {
  return static_cast<int>(std::clamp<int64_t>(products / each, 1, threads));
}

// Rows per thread for 2^14 values each: a few microseconds, the cost of waking a thread.
inline int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, (int64_t{1} << 14) / (cols + 1)); }

// Rows [first, last) of a step, sequence by sequence: body(sequence, first row, its position, row count).
template <class Body>
void for_sequences(std::span<const StepSequence> step, int64_t first, int64_t last, const Body& body) {
  int64_t begin = 0;  // first row of the sequence
  for (size_t s = 0; s < step.size(); begin += step[s++].n_tokens) {
    const int64_t from = std::max(first, begin), to = std::min(last, begin + step[s].n_tokens);
    if (from < to) body(s, from, step[s].first_position + from - begin, to - from);
  }
}

}  // namespace lariat
