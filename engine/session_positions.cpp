#include <fmt/format.h>

#include <algorithm>

#include "engine/session.h"
#include "kernels/error.h"

// What a position method asks of a session.
namespace lariat {

// Of a position method, in a text of so many tokens: it moves with the steps of a dynamic scale.
double Session::stretch_for(int64_t length) const {
  if (!options_.positions.stretch) return 1.0;
  RopeScaling steps = rope();
  steps.type = RopeType::kDynamic;
  return options_.positions.stretch(rope_step_length(steps, length, options_.rope_steps));
}

// Pages that no token sees any more were freed: a text that was taken back may need them again.
void Session::check_kept(const KvCache& cache) const {
  for (const SeenKeys& range : options_.positions.ranges) {
    if (!cache.holds(range.begin.at(cache.length()), range.end.at(cache.length()))) {
      throw Error(
          fmt::format("`position_method` {}: the cache no longer holds keys that token {} would see; "
                      "begin the text anew",
                      options_.positions.name, cache.length()));
    }
  }
}

// Frees the pages that no token behind the last one sees, but for one, which a text that is taken back by
// some tokens needs.
void Session::drop_unseen(KvCache& cache) const {
  if (options_.positions.ranges.empty()) return;
  const auto [first, last] = options_.positions.unseen(cache.length());
  cache.drop(first, last - kKvPage);
}

// Those of a position method for the step's last sequence: of its keys, and of its queries by other tables.
void Session::add_positions(int64_t first, size_t n_tokens, double stretch) {
  const std::vector<PositionMethod::Positions>& tables = options_.positions.positions;
  const SequenceRope keys = step_.ropes[0].back();
  const size_t begin = (step_.sequences.size() - 1) * tables.size();
  step_.positions.resize(std::max(step_.positions.size(), begin + tables.size()));
  for (size_t t = 0; t < tables.size(); ++t) {
    SequenceRope& rope =
        t == 0 ? step_.ropes[0].back() : step_.ropes[ropes_.size() - 1 + t].emplace_back(keys);
    if (!tables[t]) continue;
    std::vector<double>& positions = step_.positions[begin + t];
    positions.resize(n_tokens);
    for (size_t i = 0; i < n_tokens; ++i) positions[i] = tables[t](first + static_cast<int64_t>(i), stretch);
    rope.positions = positions;
  }
}

}  // namespace lariat
