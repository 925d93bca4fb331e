// A sweep's log (--resume, --merge), and its report.
#include "engine/eval/measurement_log.h"

#include "engine/eval/render/report.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(sweep_log) {
  using namespace lariat;
  using Json = nlohmann::ordered_json;
  fuzz::accepted([&] {
    const Measurements log = parse_log(input, "sweep.jsonl");
    for (const auto& record : log.records)
      fuzz::require(same_result(record, record_from_json(Json::parse(to_json(record).dump()), "")),
                    "a record is read as written");
    fuzz::require(to_json(plan_from_json(to_json(log.plan), "")) == to_json(log.plan),
                  "a plan is read as written");
    const std::string page = report_page(log, tabulate(log)), open = "id=\"data\">";
    const size_t begin = page.find(open) + open.size(), end = page.find('<', begin);
    const auto data = nlohmann::ordered_json::parse(page.substr(begin, end - begin));
    fuzz::require(page.substr(end, 9) == "</script>", "the data do not end with their element");
    fuzz::require(data["results"].size() == log.records.size(), "the report lacks some results");
  });
}
