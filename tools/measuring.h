#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/sweep.h"
#include "engine/eval/sweep_table.h"
#include "tools/options.h"

// Options, files and results that perplexity, passkey and sweep share.
namespace lariat {

// --method, --stride and --max-tokens of a perplexity; `most`: the default of --max-tokens, in words;
// growing: whether that is a method too.
void add_perplexity_options(CLI::App& command, std::string& method, int64_t& stride,
                            std::optional<int64_t>& max_tokens, const std::string& most,
                            bool growing = false);
// --task, which is returned, --needles, --haystack, --depths, --trials and --seed.
CLI::Option* add_passkey_options(CLI::App& command, PasskeyOptions& options, std::vector<std::string>& tasks,
                                 std::string& haystack);
// What a measurement writes.
struct ResultFiles {
  std::filesystem::path report, csv, svg, results;  // empty: none
  bool resume = false, json = false;                // json: one object on stdout in place of tables
};
// --json, --csv, and with `pictures` --svg.
void add_result_files(CLI::App& command, ResultFiles& files, bool pictures);
// Refuses a folder that is none, before anything is measured.
void check_result_files(const ResultFiles& files);
// Writes the files, and prints `json` or `text`. The report's data are sweep_json(log), updated with `more`.
void publish(const ResultFiles& files, const Measurements& log, const nlohmann::ordered_json& json,
             const std::string& text, const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
// --results and --resume of a command that measures one scaling, and the log that they ask for; unset: none.
void add_run_log(CLI::App& command, ResultFiles& files);
std::optional<MeasurementLog> open_run_log(const ResultFiles& files, const std::function<Plan()>& plan,
                                           bool quiet);
// Renames an older log to *.old, so that a forgotten --resume does not lose hours of results. Throws Error
// where the log or *.old is another file than a log.
void set_aside(const std::filesystem::path& log, bool quiet);
// Warns when prompts of `length` tokens need more hay than the file has.
void warn_of_short_hay(const PasskeyOptions& options, const TextCodec& codec, int64_t length, bool quiet);

// Says what a sweep will measure and how long that takes, before anything is measured but how fast the model
// is.
void say_plan(const Engine& engine, const SweepOptions& asked, Sweep& sweep, const Measurements& log);

}  // namespace lariat
