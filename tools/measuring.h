#pragma once
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/sweep.h"
#include "engine/eval/sweep_table.h"
#include "engine/stopwatch.h"
#include "tools/common.h"

// The options, progress and tables that perplexity, passkey and sweep share.
namespace lariat {

// --method, --stride and --max-tokens of a perplexity; `most`: the default of --max-tokens, in words;
// growing: whether that is a method too.
void add_perplexity_options(CLI::App& command, std::string& method, int64_t& stride,
                            std::optional<int64_t>& max_tokens, const std::string& most,
                            bool growing = false);
// --task, which is returned, --needles, --haystack, --depths, --trials and --seed.
CLI::Option* add_passkey_options(CLI::App& command, PasskeyOptions& options, std::vector<std::string>& tasks,
                                 std::string& haystack);
// What a measurement leaves beside what it prints.
struct ResultFiles {
  std::filesystem::path csv, svg, results;  // empty: none
  bool resume = false;
};
// --csv, and with `pictures` --svg.
void add_result_files(CLI::App& command, ResultFiles& files, bool pictures);
// Refuses a folder that is none, before anything is measured.
void check_result_files(const ResultFiles& files);
void write_result_files(const ResultFiles& files, const Measurements& log);
// --results and --resume of a command that measures one scaling, and the log that they ask for; unset: none.
void add_run_log(CLI::App& command, ResultFiles& files);
std::optional<MeasurementLog> open_run_log(const ResultFiles& files, const std::function<Plan()>& plan,
                                           bool quiet);
// Renames an older log to *.old, so that a forgotten --resume does not lose hours of results. Throws Error
// where the log or *.old is another file than a log.
void set_aside(const std::filesystem::path& log, bool quiet);
// Warns when prompts of `length` tokens need more hay than the file has.
void warn_of_short_hay(const PasskeyOptions& options, const TextCodec& codec, int64_t length, bool quiet);

// "0:07", "12:33" or "1:02:03".
std::string duration(double seconds);

// A progress bar with the time left, which is said once enough is done to tell; where there is no terminal, a
// line of it every minute.
class Meter {
 public:
  Meter(const char* label, bool quiet, double line_seconds = 60)
      : label_(label), quiet_(quiet), line_seconds_(line_seconds), bar_(label, kSteps, quiet) {}
  void show(double done, const std::string& note);  // done: the share, 0 ... 1

 private:
  static constexpr int64_t kSteps = 1000;
  const char* label_;
  bool quiet_;
  double line_seconds_;
  Progress bar_;
  Stopwatch::time_point start_ = Stopwatch::now(), line_ = start_;
};

// A number with so many decimals, "nan" without the sign that it may have.
inline std::string fixed(double value, int decimals) {
  return fmt::format("{:.{}f}", std::isnan(value) ? std::abs(value) : value, decimals);
}
std::string margin(double standard_error, int decimals);  // "± 0.12"; "" where there is none (NaN)

// Says what a sweep will measure and how long that takes, before anything is measured but how fast the model
// is.
void say_plan(const Engine& engine, const SweepOptions& asked, Sweep& sweep, const Measurements& log);

// The tables of a sweep and its conclusions on stdout, with all paired differences if asked for.
void print_tables(const SweepTable& table, bool differences);
// A table for a terminal: columns aligned right (the first: left), two spaces between.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

// The share found by depth (rows) and length (columns) in one column, for a terminal; over all depths with
// Wilson's interval of 95 %.
std::string heat_map(const SweepTable& table, const Column& column);

}  // namespace lariat
