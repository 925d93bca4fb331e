#include <algorithm>
#include <numeric>

#include "engine/eval/sweep.h"
#include "engine/memory_check.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;
using Kind = SweepUnit::Kind;

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kGrowing:
      return "growing";
    case Kind::kPasskey:
      return "passkey";
    case Kind::kPerplexity:
      return "perplexity";
    case Kind::kSpeed:
      break;
  }
  return "speed";
}

std::vector<SweepUnit> all_units(const Json& header) {
  const std::vector<std::string> scalings = header["scalings"];
  std::vector<int64_t> lengths = header["lengths"];
  std::ranges::reverse(lengths);
  std::vector<SweepUnit> units;
  const auto add = [&](Kind kind, const std::vector<std::string>& columns, int64_t length) {
    if (!header[std::string(name_of(kind))]["measured"].get<bool>()) return;
    for (const auto& column : columns) units.push_back({kind, column, length});
  };
  if (header["growing"]["measured"]) add(Kind::kGrowing, header["growing"]["columns"], lengths.front());
  for (const int64_t length : lengths) {
    add(Kind::kPasskey, scalings, length);
    add(Kind::kPerplexity, scalings, length);
  }
  for (const int64_t length : lengths) add(Kind::kSpeed, scalings, length);
  return units;
}

Json new_record(const SweepUnit& unit) {
  return {{"kind", name_of(unit.kind)}, {"scaling", unit.scaling}, {"length", unit.length}};
}

bool holds(const std::set<std::string>& keys, const SweepUnit& unit, const std::vector<double>& depths) {
  Json record = new_record(unit);
  if (unit.kind != Kind::kPasskey) return keys.contains(record_key(record));
  return std::ranges::all_of(depths, [&](double depth) {
    record["depth"] = depth;
    return keys.contains(record_key(record));
  });
}

std::vector<SweepUnit> missing_units(const SweepRecords& log, std::vector<SweepUnit> units) {
  const auto keys = record_keys(log);
  const std::vector<double> depths = log.header["passkey"]["depths"];
  std::erase_if(units, [&](const SweepUnit& unit) { return holds(keys, unit, depths); });
  return units;
}

// Of the part that is read; a guess where the text is shorter than that.
int64_t Sweep::text_tokens() const {
  std::error_code ec;
  const auto guess = static_cast<int64_t>(std::filesystem::file_size(options_.text, ec) / 3);
  return options_.max_tokens > 0 ? std::min(options_.max_tokens, guess) : guess;
}

// How many contexts a unit reads together.
int64_t Sweep::contexts_at_once(const SweepUnit& unit) const {
  if (unit.kind == Kind::kGrowing && options_.max_tokens > 0)
    return std::max<int64_t>(text_tokens() / unit.length, 1);
  if (unit.kind == Kind::kPasskey) return options_.passkeys.trials + 1;  // and what they begin with
  if (unit.kind == Kind::kPerplexity) return std::max<int64_t>(session_.prefill_chunk / unit.length, 1);
  return 1;
}

std::vector<Work> Sweep::work_of(const SweepUnit& unit) const {
  const int64_t length = unit.length, chunk = session_.prefill_chunk;
  if (unit.kind == Kind::kGrowing) return growing_work(length, options_.growing_step, contexts_at_once(unit));
  if (unit.kind == Kind::kSpeed) return {{0, length, chunk}, {length, length + kSpeedSteps, 1, kSpeedSteps}};
  if (unit.kind == Kind::kPasskey) return passkey_work(options_.passkeys, length, chunk);
  PerplexityOptions options;
  options.method = options_.method;
  options.stride = options_.stride;
  return window_work(options, length, text_tokens(), chunk);
}

std::vector<SweepUnit> Sweep::units() const {
  std::vector<SweepUnit> all = all_units(plan());
  if (options_.shard_count == 1) return all;
  // The most expensive first, each to the shard with the least to do; every shard computes the same plan.
  std::vector<size_t> order(all.size());
  std::vector<double> costs;
  costs.reserve(all.size());
  for (const auto& unit : all) costs.push_back(seconds_for(kPlanRate, work_of(unit)));
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
    sum.seconds += seconds_for(rate_, work_of(mine[i]));
    sum.cache_bytes = std::max(sum.cache_bytes, static_cast<double>(contexts * length) * position_bytes);
    sum.tokens += tokens_in(work_of(mine[i]));
  }
  return sum;
}

}  // namespace lariat
