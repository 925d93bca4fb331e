#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/eval/measurement.h"

namespace lariat {

// A log of measurements, or of one shard of a sweep: a JSON object per line, first the plan.
//
//   {"lariat_sweep":1,"model":{...},"text":{...},"options":{...},...,"shard":{"index":0,"count":1}}
//   {"kind":"growing","scaling":"dynamic stale","length":2048,"positions":[{"from":0,"to":128,...},...],...}
//   {"kind":"perplexity","scaling":"yarn","length":1024,"tokens":...,"nll":...,...,"timing":{...}}
//   {"kind":"passkey","scaling":"yarn","length":1024,"depth":0.5,"trials":5,"correct":4,...}
//   {"kind":"speed","scaling":"yarn","length":1024,"cache_bytes":...,"timing":{...}}
//   {"kind":"losses",...}: a part of an interrupted measurement
//
// A log that was extended holds a plan before each extension, and keeps all records. A line is written and
// flushed when its measurement is done. Everything that depends on the machine's speed is under "timing", so
// that runs can be compared without it.

// Whether a file begins like such a log, so that it may be renamed or replaced.
bool is_measurement_log(const std::filesystem::path& file);

// Reads a log: the records that its last plan asks for. A last line without its end, which a killed process
// leaves, is dropped; a repeated record counts once. Throws Error naming the file and the line for anything
// else.
Measurements read_log(const std::filesystem::path& file);

// Reads a log in memory; errors name it `file`.
Measurements parse_log(std::string_view text, const std::filesystem::path& file);

// Joins logs of one model and text: shards, or other columns, lengths, depths, tasks and kinds of
// measurement. Throws Error where other settings differ, or a measurement has two results.
Measurements merge_logs(const std::vector<std::filesystem::path>& files);

// The file of a measurement's parts until its record is known (run_log.h).
inline std::filesystem::path part_file(const std::filesystem::path& log) { return log.string() + ".part"; }

// Appends to a log. The file is created, or, to resume, read, cut after its last whole line and continued:
// contents() are the records that `plan` asks for. Throws Error for a log of another model or text.
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
