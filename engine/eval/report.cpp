#include "engine/eval/report.h"

#include <algorithm>

#include "engine/eval/needles.h"
#include "engine/eval/results_csv.h"
#include "engine/eval/sweep.h"
#include "engine/eval/sweep_svg.h"
#include "engine/eval/sweep_table.h"
#include "engine/eval/verdict.h"
#include "kernels/error.h"
#include "models/io/atomic_file.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {
using Json = nlohmann::ordered_json;
}

extern const std::string_view kReportPage;  // report.html, as CMakeLists.txt makes it a string

std::string report_page(const Json& data) {
  constexpr std::string_view kPlace = "\"DATA\"";
  // In JSON "<" stands only inside strings; as an escape it cannot end the element that holds the data.
  const std::string json =
      replace_all(data.dump(-1, ' ', true, Json::error_handler_t::replace), "<", "\\u003c");
  std::string page(kReportPage);
  return page.replace(page.find(kPlace), kPlace.size(), json);
}

void add_pictures(Json& data, const SweepRecords& log) {
  const SweepTable table = tabulate(log);
  data["pictures"] = Json::array();
  for (const SweepPicture& picture : sweep_pictures(table))
    data["pictures"].push_back({{"name", picture.name},
                                {"column", picture.column},
                                {"wide", picture.wide},
                                {"narrow", picture.narrow}});
  data["colours"] = Json::object();
  for (const auto* columns : {&table.scalings, &table.growing_columns}) {
    for (const std::string& column : *columns) data["colours"][column] = colour_of(table, column);
  }
  data["style"] = kSweepSvgStyle;
  data["csv"] = results_csv(log);
}

void write_pictures(const SweepRecords& log, const std::filesystem::path& folder) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) throw Error(folder.string() + ": cannot be made: " + ec.message());
  for (const SweepPicture& picture : sweep_pictures(tabulate(log)))
    write_file_atomically(folder / (picture.name + ".svg"), svg_file(picture.wide));
}

Json sweep_json(const SweepRecords& log) {
  Json header = log.header;
  header.erase("lariat_sweep");
  header.erase("shard");
  Json results = log.records;
  for (Json& record : results) record.update(labels_of(log.header, record));
  return {{"sweep", header},
          {"complete", is_complete(log)},
          {"results", results},
          {"conclusions", conclusions(tabulate(log))}};
}

std::string sweep_report(const SweepRecords& log) {
  Json data = sweep_json(log);
  for (Json& record : data["results"]) {
    if (record["kind"] != "speed") record = without_timing(record);
  }
  std::stable_sort(data["results"].begin(), data["results"].end(),
                   [](const Json& a, const Json& b) { return record_key(a) < record_key(b); });
  const Json& passkey = log.header["passkey"];
  const std::string hay = passkey["haystack"]["name"];
  data["hidden"] = hidden_in({needle_task(passkey["task"].get<std::string>()).value(), passkey["needles"]},
                             hay == "noise" ? "" : hay);
  const SweepTable table = tabulate(log);
  data["things"] = things_of(table.task);
  data["ranges"] = Json::array();
  for (const PositionRange& range : growing_ranges(table)) {
    data["ranges"].push_back({{"name", range.name()}, {"from", range.from}, {"to", range.to}});
    data["ranges"].back()["best"] = by_growing(table, range).best;
  }
  data["best"] = Json::object();  // which scalings are shown to read a length best
  for (const int64_t length : table.lengths)
    data["best"][std::to_string(length)] = by_perplexity(table, length).best;
  const Json& sentences = data["conclusions"];
  data["overall"] = !sentences.empty() && sentences.back().get<std::string>().starts_with(kOverall);
  add_pictures(data, {log.header, data["results"]});
  return report_page(data);
}

}  // namespace lariat
