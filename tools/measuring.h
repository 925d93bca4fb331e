#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/sweep.h"
#include "engine/eval/sweep_table.h"
#include "tools/options.h"

namespace lariat {

struct PerplexityHelp {
  std::string stride, most, tokens;  // defaults of --stride and --max-tokens; note on the latter
};
// growing: allows growing contexts and anchored windows.
void add_perplexity_options(CLI::App& command, std::string& method, int64_t& stride,
                            std::optional<int64_t>& max_tokens, const PerplexityHelp& help, bool growing);
// Returns --scalings: table columns, still split at commas.
CLI::Option* add_scalings_option(CLI::App& command, std::vector<std::string>& scalings);
// Joins parts of --scalings: a part that begins with a digit continues a list of factors.
std::vector<std::string> whole_columns(const std::vector<std::string>& parts);
// Returns --task.
CLI::Option* add_passkey_options(CLI::App& command, PasskeyOptions& options, std::vector<NeedleTask>& tasks,
                                 std::string& haystack);
struct ResultFiles {
  std::filesystem::path report, csv, svg, results;  // empty: none
  bool resume = false, json = false;                // json: one object on stdout, no tables
};
// Adds --json, --csv, and with `pictures` --svg.
void add_result_files(CLI::App& command, ResultFiles& files, bool pictures);
// Throws Error, before any measurement, if --svg is an existing file.
void check_result_files(const ResultFiles& files);
void publish(const ResultFiles& files, const Measurements& log, const SweepTable& table,
             const nlohmann::ordered_json& json, const std::string& text,
             const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
// --results and --resume; unset: no log.
void add_run_log(CLI::App& command, ResultFiles& files);
std::optional<MeasurementLog> open_run_log(const ResultFiles& files, const std::function<Plan()>& plan,
                                           bool quiet);
// Renames an existing log to *.old: a forgotten --resume loses no results. Throws Error if either is no log.
void set_aside(const std::filesystem::path& log, bool quiet);
// Warns if prompts of `length` tokens exceed the haystack.
void warn_of_short_hay(const PasskeyOptions& options, const TextCodec& codec, int64_t length, bool quiet);

void say_plan(const Schedule& schedule, const SweepOptions& asked, const Pace& pace, const Measurements& log);

}  // namespace lariat
