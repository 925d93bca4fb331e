// The measurements of a sweep, read off its header alone.
#include <algorithm>

#include "engine/eval/sweep.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;
using Kind = SweepUnit::Kind;

constexpr std::string_view kKinds[] = {"growing", "passkey", "perplexity", "speed"};  // as in SweepUnit::Kind

}  // namespace

std::string_view name_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

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

Json passkey_record(const std::string& scaling, const PasskeyCell& cell, NeedleTask task) {
  Json record = new_record({Kind::kPasskey, scaling, cell.length});
  record["depth"] = cell.depth;
  record["trials"] = cell.trials.size();
  record["correct"] = cell.correct();
  if (task != NeedleTask::kPasskey) record["recall"] = cell.recall();
  return record;
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

}  // namespace lariat
