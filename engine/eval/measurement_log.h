#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/eval/measurement.h"

namespace lariat {

// Log of measurements or of one sweep shard: JSON lines, starting with the plan.
//
//   {"lariat_sweep":1,"model":{...},"text":{...},"options":{...},...,"shard":{"index":0,"count":1}}
//   {"kind":"growing","scaling":"dynamic stale","length":2048,"positions":[{"from":0,"to":128,...},...],...}
//   {"kind":"perplexity","scaling":"yarn","length":1024,"tokens":...,"nll":...,...,"timing":{...}}
//   {"kind":"passkey","scaling":"yarn","length":1024,"depth":0.5,"trials":5,"correct":4,...}
//   {"kind":"speed","scaling":"yarn","length":1024,"cache_bytes":...,"timing":{...}}
//   {"kind":"losses",...}: one part of an interrupted measurement
//
// Each line is flushed. Extending a log appends another plan. Only "timing" depends on the machine's speed.

// Only files that start like a log are renamed or replaced.
bool is_measurement_log(const std::filesystem::path& file);

// Returns the records that the last plan includes. Drops an incomplete last line, which a killed process
// leaves. Throws Error naming file and line on other problems.
Measurements read_log(const std::filesystem::path& file);

// Same for a log in memory; errors name `file`.
Measurements parse_log(std::string_view text, const std::filesystem::path& file);

// Merges logs of one model and text, such as shards. Throws Error if other settings differ or a measurement
// has two results.
Measurements merge_logs(const std::vector<std::filesystem::path>& files);

// Parts of an unfinished measurement (run_log.h).
inline std::filesystem::path part_file(const std::filesystem::path& log) { return log.string() + ".part"; }

// `resume` keeps an existing log up to its last complete line; contents() then returns the records that
// `plan` includes. Throws Error for another model or text.
class MeasurementLog {
 public:
  MeasurementLog(std::filesystem::path file, const Plan& plan, bool resume);
  MeasurementLog(const MeasurementLog&) = delete;
  MeasurementLog& operator=(const MeasurementLog&) = delete;
  ~MeasurementLog();

  const Measurements& contents() const { return contents_; }
  const std::filesystem::path& file() const { return file_; }
  void append(const Record& record);

 private:
  void write_line(const nlohmann::ordered_json& json);
  std::filesystem::path file_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  bool regular_ = false;
  Measurements contents_;
};

}  // namespace lariat
