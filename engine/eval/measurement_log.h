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
// Each line is flushed when its measurement is done. Extending a log appends another plan and keeps all
// records. Only "timing" depends on the speed of the machine.

// Returns whether a file starts like a log. Only such files are renamed or replaced.
bool is_measurement_log(const std::filesystem::path& file);

// Reads a log and returns the records that its last plan includes. Drops an incomplete last line, which a
// killed process leaves. A repeated record counts once. Throws Error naming file and line on other problems.
Measurements read_log(const std::filesystem::path& file);

// Parses a log in memory; errors name `file`.
Measurements parse_log(std::string_view text, const std::filesystem::path& file);

// Merges logs of one model and text: shards, or different columns, lengths, depths, tasks and measurement
// kinds. Throws Error if other settings differ or a measurement has two results.
Measurements merge_logs(const std::vector<std::filesystem::path>& files);

// File for the parts of an unfinished measurement (run_log.h).
inline std::filesystem::path part_file(const std::filesystem::path& log) { return log.string() + ".part"; }

// Appends to a log file. `resume` keeps an existing log, truncated after its last complete line; contents()
// returns its records that `plan` includes. Throws Error if the log has another model or text.
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
  Measurements contents_;
};

}  // namespace lariat
