#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace lariat {

// The results of a sweep, or of one shard of it, as a file of one JSON object per line:
//
//   {"lariat_sweep":1,"model":{...},"text":{...},"options":{...},...,"shard":{"index":0,"count":1}}
//   {"kind":"growing","scaling":"dynamic stale","length":2048,"positions":[{"from":0,"to":128,...},...],...}
//   {"kind":"perplexity","scaling":"yarn","length":1024,"tokens":...,"nll":...,...,"timing":{...}}
//   {"kind":"passkey","scaling":"yarn","length":1024,"depth":0.5,"trials":5,"correct":4,...}
//   {"kind":"speed","scaling":"yarn","length":1024,"cache_bytes":...,"timing":{...}}
//
// "scaling" is the name of a column (sweep_column.h).
// Logs of parts of a measurement (run_log.h) have {"kind":"losses",...} and passkeys by "trial" beside these.
// A line is written and flushed when its measurement is done. Everything that depends on how fast
// the machine is stands under "timing", so that runs can be compared without it.
struct SweepRecords {
  nlohmann::ordered_json header;
  std::vector<nlohmann::ordered_json> records;
};

// The key of a measurement among the others: "perplexity/yarn/1024", "passkey/yarn/1024/0.5".
std::string record_key(const nlohmann::ordered_json& record);

std::set<std::string> record_keys(const SweepRecords& log);

// Whether a file begins like such a log, so that it may be renamed or replaced.
bool is_sweep_log(const std::filesystem::path& file);

// Reads such a file. A line that a killed process left half written at the end is dropped, and a record that
// is repeated counts once; anything else that is not as above is an Error naming the file and the line.
// whole_bytes: up to the end of the last whole line.
SweepRecords read_sweep_log(const std::filesystem::path& file, uint64_t* whole_bytes = nullptr);

// Reads a log in memory; errors name it `file`.
SweepRecords parse_sweep_log(std::string_view text, const std::filesystem::path& file,
                             uint64_t* whole_bytes = nullptr);

// Throws Error naming `file` when tables and reports cannot be made of logs with this header: something is
// missing or of the wrong type, or there are more than 10,000 cells. read_sweep_log leaves that open, since a
// header that is compared with one of this process says better what is wrong.
void check_header(const nlohmann::ordered_json& header, const std::filesystem::path& file);

// Throws Error naming `file` and what differs when a log with `header` cannot hold results of a sweep with
// the header `wanted`. Shards may differ.
void check_same_sweep(const nlohmann::ordered_json& header, const nlohmann::ordered_json& wanted,
                      const std::filesystem::path& file);

// One log of several (the shards'). A measurement that stands in more than one is taken once; with different
// results it is an Error.
SweepRecords merge_sweep_logs(const std::vector<std::filesystem::path>& files);

// Where the beginning of a measurement stands whose record is not known yet (run_log.h).
inline std::filesystem::path part_file(const std::filesystem::path& log) { return log.string() + ".part"; }

// The record without its "timing".
nlohmann::ordered_json without_timing(nlohmann::ordered_json record);

// Appends to a log. The file is created, or, to resume, read, checked, cut after its last whole line and
// continued.
class SweepLog {
 public:
  SweepLog(std::filesystem::path file, const nlohmann::ordered_json& header, bool resume);
  SweepLog(const SweepLog&) = delete;
  SweepLog& operator=(const SweepLog&) = delete;
  ~SweepLog();

  const SweepRecords& contents() const { return contents_; }
  const std::filesystem::path& file() const { return file_; }
  void append(const nlohmann::ordered_json& record);

 private:
  void write_line(const nlohmann::ordered_json& json);
  std::filesystem::path file_;
  int fd_ = -1;
  SweepRecords contents_;
};

}  // namespace lariat
