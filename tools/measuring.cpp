#include "tools/measuring.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "engine/eval/render/report.h"
#include "engine/eval/render/results_csv.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "models/io/text_file.h"
#include "models/positions/parse_position_method.h"
#include "models/text/unicode.h"
#include "tools/help.h"

namespace lariat {

void add_perplexity_options(CLI::App& command, std::string& method, int64_t& stride,
                            std::optional<int64_t>& max_tokens, const PerplexityHelp& help, bool growing) {
  std::vector<std::string> methods = {"sliding", "chunks"};
  std::string meaning = "overlapping windows, disjoint chunks";
  if (growing) {
    methods.emplace_back("growing");
    methods.emplace_back("anchored");
    methods.emplace_back("tail");
    meaning += ", growing context, one prefill per --step, the last --step of disjoint windows";
  }
  command.add_option("--method", method, meaning)->check(CLI::IsMember(methods));
  command.add_option("--stride", stride, "tokens between sliding windows")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->default_str(help.stride);
  command.add_option("--max-tokens", max_tokens, "use the first N tokens; " + help.tokens)
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60))
      ->default_str(help.most);
}

CLI::Option* add_scalings_option(CLI::App& command, std::vector<std::string>& scalings) {
  // Both lists begin with none.
  const std::string methods = known_position_methods("|").substr(std::string_view("none").size());
  return command
      .add_option("--scalings", scalings,
                  "scalings (yarn/factor=4), position methods or both (dca/window=2048+yarn); model: from "
                  "config.json")
      ->delimiter(',')
      ->type_name("model|" + known_scalings("|") + methods);
}

std::vector<std::string> whole_columns(const std::vector<std::string>& parts) {
  std::vector<std::string> columns;
  for (const std::string& part : parts) {
    if (!columns.empty() && !part.empty() && part[0] >= '0' && part[0] <= '9') {
      columns.back() += "," + part;
    } else {
      columns.push_back(part);
    }
  }
  return columns;
}

CLI::Option* add_passkey_options(CLI::App& command, PasskeyOptions& options, std::vector<NeedleTask>& tasks,
                                 std::string& haystack) {
  std::vector<std::string> names;
  for (const NeedleTask task : kNeedleTasks) names.emplace_back(name_of(task));
  CLI::Option* const task = command
                                .add_option_function<std::vector<std::string>>(
                                    "--task",
                                    [&tasks](const std::vector<std::string>& asked) {
                                      tasks.clear();
                                      for (const std::string& name : asked)
                                        tasks.push_back(needle_task(name).value());
                                    },
                                    "retrieval task of RULER: passkey, key-value needles, variable tracking")
                                ->check(CLI::IsMember(names))
                                ->default_str("passkey");
  command
      .add_option("--needles", options.needles.count,
                  "number of needles or chain steps, unless --task is passkey")
      ->check(CLI::Range(int64_t{1}, kMostNeedles));
  command.add_option("--haystack", haystack, "text around the needles; noise: five repeated sentences")
      ->type_name("noise|FILE");
  command.add_option("--depths", options.depths, "depth of the requested needle, 0 (start) to 1 (end)")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--trials", options.trials, "prompts per length and depth")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command.add_option("--seed", options.seed, "random seed of the needles");
  return task;
}

void add_result_files(CLI::App& command, ResultFiles& files, bool pictures) {
  command.add_flag("--json", files.json, "one JSON object on stdout")->group(kOutputOptions);
  add_output_option(command, "--csv", files.csv, "also write the results as CSV")->group(kOutputOptions);
  if (pictures)
    command.add_option("--svg", files.svg, "also write the report's figures to this folder")
        ->type_name("DIR")
        ->group(kOutputOptions);
}

void check_result_files(const ResultFiles& files) {
  std::error_code ec;
  if (!files.svg.empty() && std::filesystem::exists(files.svg, ec) &&
      !std::filesystem::is_directory(files.svg, ec))
    throw Error(files.svg.string() + ": not a folder; name a folder, as --svg writes several figures");
}

void publish(const ResultFiles& files, const Measurements& log, const SweepTable& table,
             const nlohmann::ordered_json& json, const std::string& text,
             const nlohmann::ordered_json& more) {
  if (!files.report.empty()) write_file_atomically(files.report, report_page(log, table, more));
  if (!files.csv.empty()) write_file_atomically(files.csv, results_csv(log, table));
  if (!files.svg.empty()) write_pictures(table, files.svg);
  if (files.json) return print_json(json);
  std::cout << text << std::flush;
}

void add_run_log(CLI::App& command, ResultFiles& files) {
  add_output_option(command, "--results", files.results, "save results to this file during the run")
      ->group(kOutputOptions);
  command.add_flag("--resume", files.resume, "resume an interrupted run from its results")
      ->needs("--results")
      ->group(kOutputOptions);
}

std::optional<MeasurementLog> open_run_log(const ResultFiles& files, const std::function<Plan()>& plan,
                                           bool quiet) {
  if (files.results.empty()) return std::nullopt;
  if (!files.resume) set_aside(files.results, quiet);
  return std::optional<MeasurementLog>(std::in_place, files.results, plan(), files.resume);
}

void set_aside(const std::filesystem::path& log, bool quiet) {
  namespace fs = std::filesystem;
  std::error_code ec;
  // Devices and pipes are written directly.
  if (!fs::is_regular_file(log, ec) || fs::file_size(log, ec) == 0) return;
  const fs::path target = fs::canonical(log), old = target.string() + ".old";  // keeps symbolic links
  const bool is_old = fs::is_regular_file(fs::symlink_status(old, ec)) && is_measurement_log(old);
  for (const auto& [file, replaceable] :
       {std::pair(log, is_measurement_log(log)), {old, is_old || !fs::exists(fs::symlink_status(old, ec))}}) {
    if (!replaceable)
      throw Error(
          fmt::format("{}: exists and is not a results file; move it or name another file for the "
                      "results",
                      file.string()));
  }
  fs::rename(target, old, ec);
  if (ec)
    throw Error(fmt::format("{}: cannot be renamed to {} ({}); name another file for the results",
                            log.string(), old.string(), ec.message()));
  if (!quiet) say("earlier results are now " + old.string() + "; --resume would have continued them");
}

void warn_of_short_hay(const PasskeyOptions& options, const TextCodec& codec, int64_t length, bool quiet) {
  if (options.hay->file.empty() || !PasskeyPrompts(codec, options.hay).repeats(length)) return;
  print_warnings({fmt::format("{} is shorter than a prompt of {} and is repeated from its start",
                              input_name(options.hay->file), counted(length, "token"))},
                 quiet);
}

}  // namespace lariat
