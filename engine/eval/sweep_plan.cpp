// The measurements of a sweep, read off its header alone.
#include <algorithm>

#include "engine/contexts/fingerprint.h"
#include "engine/eval/sweep.h"

namespace lariat {
namespace {
using Json = nlohmann::ordered_json;
}

Json SweepUnit::record() const { return {{"kind", kind}, {"scaling", scaling}, {"length", length}}; }

std::vector<SweepUnit> all_units(const Json& header) {
  const std::vector<std::string> scalings = header["scalings"];
  std::vector<int64_t> lengths = header["lengths"];
  std::ranges::reverse(lengths);
  std::vector<SweepUnit> units;
  const auto add = [&](const char* kind, const std::vector<std::string>& columns, int64_t length) {
    if (!header[kind]["measured"].get<bool>()) return;
    for (const auto& column : columns) units.push_back({kind, column, length});
  };
  if (header["growing"]["measured"]) add("growing", header["growing"]["columns"], lengths.front());
  for (const int64_t length : lengths) {
    add("passkey", scalings, length);
    add("perplexity", scalings, length);
  }
  for (const int64_t length : lengths) add("speed", scalings, length);
  return units;
}

Json passkey_plan(const PasskeyOptions& options, bool measured) {
  Json hay = {{"name", "noise"}};
  if (const auto& file = options.hay->file; !file.empty())
    hay = {{"name", file.filename().string()}, {"fingerprint", file_fingerprint(file)}};
  return {{"measured", measured},
          {"depths", options.depths},
          {"trials", options.trials},
          {"seed", options.seed},
          {"task", name_of(options.needles.task)},
          {"needles", options.needles.count},
          {"haystack", hay}};
}

Json passkey_record(const std::string& scaling, const PasskeyCell& cell, NeedleTask task) {
  Json record = SweepUnit{"passkey", scaling, cell.length}.record();
  record["depth"] = cell.depth;
  record["trials"] = cell.trials.size();
  record["correct"] = cell.correct();
  if (task != NeedleTask::kPasskey) record["recall"] = cell.recall();
  return record;
}

std::vector<SweepUnit> missing_units(const SweepRecords& log, std::vector<SweepUnit> units) {
  const auto keys = record_keys(log);
  const std::vector<double> depths = log.header["passkey"]["depths"];
  std::erase_if(units, [&](const SweepUnit& unit) {
    Json record = unit.record();
    if (unit.kind != "passkey") return keys.contains(record_key(record));
    return std::ranges::all_of(depths, [&](double depth) {
      record["depth"] = depth;
      return keys.contains(record_key(record));
    });
  });
  return units;
}

}  // namespace lariat
