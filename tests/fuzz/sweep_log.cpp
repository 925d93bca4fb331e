// The JSON lines of a sweep, as --resume and --merge read them, up to the report made of them.
#include "engine/eval/sweep_log.h"

#include "engine/eval/report.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(sweep_log) {
  using namespace lariat;
  fuzz::accepted([&] {
    uint64_t whole_bytes = 0;
    const SweepRecords log = parse_sweep_log(input, "sweep.jsonl", &whole_bytes);
    fuzz::require(whole_bytes <= input.size(), "more bytes than there are");
    for (const auto& record : log.records)
      fuzz::require(!record_key(record).empty(), "a record without a key");
    check_same_sweep(log.header, log.header, "sweep.jsonl");
    check_header(log.header, "sweep.jsonl");
    const std::string page = sweep_report(log), open = "id=\"data\">";
    const size_t begin = page.find(open) + open.size(), end = page.find('<', begin);
    const auto data = nlohmann::ordered_json::parse(page.substr(begin, end - begin));
    fuzz::require(page.substr(end, 9) == "</script>", "data that do not end where their element does");
    fuzz::require(data["results"].size() == log.records.size(), "a report without some of the results");
  });
}
