// What a sweep measures, read off its header alone.
#include <algorithm>

#include "engine/eval/sweep.h"

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

}  // namespace lariat
