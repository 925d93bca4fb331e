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

void add_pictures(Json& data, const Measurements& log) {
  const SweepTable table = tabulate(log);
  Json pictures = Json::array(), colours = Json::object();
  for (const SweepPicture& picture : sweep_pictures(table))
    pictures.push_back({{"name", picture.name},
                        {"column", picture.column},
                        {"wide", picture.wide},
                        {"narrow", picture.narrow}});
  for (const auto* columns : {&table.columns, &table.growing_columns}) {
    for (const Column& column : *columns) colours[column.name()] = colour_of(table, column);
  }
  data.update(
      {{"pictures", pictures}, {"colours", colours}, {"style", kSweepSvgStyle}, {"csv", results_csv(log)}});
}

void write_pictures(const Measurements& log, const std::filesystem::path& folder) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) throw Error(folder.string() + ": cannot be made: " + ec.message());
  for (const SweepPicture& picture : sweep_pictures(tabulate(log)))
    write_file_atomically(folder / (picture.name + ".svg"), svg_file(picture.wide));
}

Json sweep_json(const Measurements& log) {
  Json plan = to_json(log.plan), results = Json::array();
  for (const char* key : {"lariat_sweep", "shard"}) plan.erase(key);
  for (const Record& record : log.records) results.push_back(labelled(log.plan, record));
  return {{"sweep", plan},
          {"complete", log.complete()},
          {"results", results},
          {"conclusions", conclusions(tabulate(log))}};
}

std::string sweep_report(Measurements log) {
  for (Record& record : log.records) {
    if (record.kind() != Kind::kSpeed) record.timing.reset();
  }
  std::ranges::stable_sort(log.records, {}, &Record::key);
  Json data = sweep_json(log);
  const Plan::Passkey& passkey = log.plan.passkey;
  const std::string& hay = passkey.haystack.name;
  const SweepTable table = tabulate(log);
  Json ranges = Json::array(), best = Json::object();
  for (const PositionRange& range : growing_ranges(table))
    ranges.push_back({{"name", range.name()},
                      {"from", range.from},
                      {"to", range.to},
                      {"best", by_growing(table, range).best}});
  for (const int64_t length : table.lengths)  // the columns shown to read this length best
    best[std::to_string(length)] = by_perplexity(table, length).best;
  const auto sentences = conclusions(table);
  data.update({{"hidden", hidden_in({passkey.task, passkey.needles}, hay == "noise" ? "" : hay)},
               {"things", things_of(table.task)},
               {"ranges", ranges},
               {"best", best},
               {"overall", !sentences.empty() && sentences.back().starts_with(kOverall)}});
  add_pictures(data, log);
  return report_page(data);
}

}  // namespace lariat
