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
    const SweepTable table = tabulate(log);
    conclusions(table);
    const std::string page = html_report(table);
    fuzz::require(page.find("<script") == std::string::npos, "a script in the report");
  });
}
