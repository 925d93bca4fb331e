#include <fmt/format.h>

#include <algorithm>

#include "engine/session.h"
#include "kernels/error.h"

// What a position method asks of a session.
namespace lariat {

// Of a text of so many tokens: it moves with the steps of a dynamic scale.
double Session::stretch_for(const PositionMethod& method, int64_t length) const {
  if (!method.stretch) return 1.0;
  RopeScaling steps = rope();
  steps.type = RopeType::kDynamic;
  return method.stretch(rope_step_length(steps, length, options_.rope_steps));
}

// That nobody looks, and that the keys are there which the next token sees: pages that none sees any more
// were freed, and a text that was taken back may need them again.
void Session::check_method(const Sequence& sequence) const {
  const PositionMethod& method = sequence.method_;
  const KvCache& cache = sequence.cache_;
  if (observed_ && !method.ranges.empty())
    throw UsageError("`position_method` " + method.name +
                     ": a trace shows one rotation of queries; use none");
  for (const SeenKeys& range : method.ranges) {
    if (!cache.holds(range.begin.at(cache.length()), range.end.at(cache.length()))) {
      throw Error(
          fmt::format("`position_method` {}: the cache no longer holds keys that token {} would see; "
                      "begin the text anew",
                      method.name, cache.length()));
    }
  }
}

// Frees the pages that no token behind the last one sees, but for one, which a text that is taken back by
// some tokens needs.
void Sequence::drop_unseen() {
  if (method_.ranges.empty()) return;
  const auto [first, last] = method_.unseen(length());
  cache_.drop(first, last - kKvPage);
}

// Those of its method for the step's last sequence: of its keys, and of its queries by other tables. What a
// sequence has no table for turns as its keys do.
void Session::add_positions(const Sequence& sequence, size_t n_tokens) {
  const std::vector<PositionMethod::Positions>& tables = sequence.method_.positions;
  const SequenceRope keys = step_.ropes[0].back();
  const size_t n_tables = step_.ropes.size() - ropes_.size() + 1;
  const size_t begin = (step_.sequences.size() - 1) * n_tables;
  step_.positions.resize(std::max(step_.positions.size(), begin + n_tables));
  for (size_t t = 0; t < n_tables; ++t) {
    SequenceRope& rope =
        t == 0 ? step_.ropes[0].back() : step_.ropes[ropes_.size() - 1 + t].emplace_back(keys);
    if (t >= tables.size() || !tables[t]) continue;
    std::vector<double>& positions = step_.positions[begin + t];
    positions.resize(n_tokens);
    for (size_t i = 0; i < n_tokens; ++i)
      positions[i] = tables[t](sequence.length() + static_cast<int64_t>(i), sequence.stretch_.value);
    rope.positions = positions;
  }
  const std::vector<SeenKeys>& ranges = sequence.method_.ranges;
  if (step_.seen.empty() || !std::ranges::equal(step_.seen.back().keys, ranges))
    step_.seen.push_back({ranges});
  ++step_.seen.back().n_sequences;
}

}  // namespace lariat
