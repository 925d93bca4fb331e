#include <algorithm>
#include <numeric>

#include "engine/eval/sweep.h"
#include "engine/memory_check.h"

namespace lariat {
namespace {

using Kind = SweepUnit::Kind;

}  // namespace

// How many contexts a unit reads together.
int64_t Sweep::contexts_at_once(const SweepUnit& unit) const {
  if (unit.kind == Kind::kGrowing && options_.max_tokens > 0)
    return std::max<int64_t>(text_tokens_ / unit.length, 1);
  if (unit.kind == Kind::kPasskey) return options_.passkeys.trials + 1;  // and what they begin with
  if (unit.kind == Kind::kPerplexity) return std::max<int64_t>(session_.prefill_chunk / unit.length, 1);
  return 1;
}

std::vector<Work> Sweep::work_of(const SweepUnit& unit, int64_t chunk) const {
  const int64_t length = unit.length;
  if (unit.kind == Kind::kGrowing) return growing_work(length, options_.growing_step, contexts_at_once(unit));
  if (unit.kind == Kind::kSpeed) return {{0, length, chunk}, {length, length + kSpeedSteps, 1, kSpeedSteps}};
  if (unit.kind == Kind::kPasskey) return passkey_work(options_.passkeys, length, chunk);
  PerplexityOptions options;
  options.method = options_.method;
  options.stride = options_.stride;
  return window_work(options, length, text_tokens_, chunk);
}

std::vector<SweepUnit> Sweep::units() const {
  std::vector<SweepUnit> all = all_units(plan());
  if (options_.shard_count == 1) return all;
  // The most expensive first, each to the shard with the least to do; every shard computes the same plan.
  std::vector<size_t> order(all.size());
  std::vector<double> costs;
  costs.reserve(all.size());
  for (const auto& unit : all) costs.push_back(seconds_for(kPlanRate, work_of(unit, kPlanChunk)));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<double> load(static_cast<size_t>(options_.shard_count));
  std::vector<size_t> mine;
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    if (least - load.begin() == options_.shard_index) mine.push_back(i);
    *least += costs[i];
  }
  std::sort(mine.begin(), mine.end());
  std::vector<SweepUnit> units;
  units.reserve(mine.size());
  for (const size_t i : mine) units.push_back(all[i]);
  return units;
}

// Which units the log lacks and no equal one of the log or before them spares.
std::vector<bool> Sweep::to_measure(const std::vector<SweepUnit>& units, const SweepRecords& log) const {
  const auto keys = record_keys(log);
  const auto& depths = options_.passkeys.depths;
  std::vector<bool> result;
  for (auto unit = units.begin(); unit != units.end(); ++unit) {
    const bool spared = std::ranges::any_of(options_.scalings, [&](const std::string& other) {
      if (!equal(*unit, other)) return false;
      const SweepUnit source{unit->kind, other, unit->length};
      return holds(keys, source, depths) || std::find(units.begin(), unit, source) != unit;
    });
    result.push_back(!spared && !holds(keys, *unit, depths));
  }
  return result;
}

WorkRate Sweep::probe() const {
  Session session(model_, backend_, session_);
  return measure_rate(session, options_.lengths.back());
}

SweepEstimate Sweep::estimate(const SweepRecords& log) const {
  Session session(model_, backend_, session_);
  const KvPool& pool = session.pool();
  const auto position_bytes = static_cast<double>(pool.k_bytes_per_position() + pool.v_bytes_per_position());
  const std::vector<SweepUnit> mine = units();
  const std::vector<bool> wanted = to_measure(mine, log);
  SweepEstimate sum;
  for (size_t i = 0; i < mine.size(); ++i) {
    if (!wanted[i]) continue;
    const int64_t length = mine[i].length + kSpeedSteps;
    const int64_t contexts = affordable_sequences(session, length, contexts_at_once(mine[i]));
    sum.units += 1;
    sum.seconds += seconds_for(rate_, work_of(mine[i], session_.prefill_chunk));
    sum.cache_bytes = std::max(sum.cache_bytes, static_cast<double>(contexts * length) * position_bytes);
    sum.tokens += tokens_in(work_of(mine[i], session_.prefill_chunk));
  }
  return sum;
}

}  // namespace lariat
