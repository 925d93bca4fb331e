#include "engine/eval/measure/sweep.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <regex>
#include <set>

#include "engine/eval/render/report.h"
#include "engine/eval/render/tables.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "models/io/json_file.h"
#include "models/io/text_file.h"
#include "models/spec/position_method.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/options.h"
#include "tools/signals.h"

namespace lariat {
namespace {

struct SweepCommand {
  CommonOptions common = CommonOptions::measuring();
  SweepOptions sweep;
  std::string method = "sliding", haystack = "noise", shard;
  std::vector<NeedleTask> tasks = {NeedleTask::kPasskey};
  std::filesystem::path losses;
  ResultFiles files;
  std::vector<std::filesystem::path> merge;
  std::string relative_to;
  std::vector<std::string> ranges;
  bool differences = false;
};

std::vector<PositionRange> ranges_of(const SweepCommand& command) {
  constexpr size_t kMost = 8;  // their ends still fit a log's list of buckets
  if (command.ranges.size() > kMost) throw UsageError(fmt::format("--ranges: give at most {}", kMost));
  static const std::regex pattern("([0-9]{1,15})-([0-9]{1,15})");
  std::vector<PositionRange> ranges;
  for (const std::string& text : command.ranges) {
    std::smatch ends;
    if (!std::regex_match(text, ends, pattern) || std::stoll(ends[1]) >= std::stoll(ends[2]))
      throw UsageError(
          fmt::format("--ranges {}: no range of positions; write FROM-TO, such as 8192-12288", text));
    ranges.push_back({std::stoll(ends[1]), std::stoll(ends[2])});
  }
  return ranges;
}

View view_of(const SweepCommand& command, const Plan& plan) {
  View view;
  if (!command.relative_to.empty()) {
    const Column& base = view.relative_to.emplace(command.relative_to);
    std::vector<std::string> names;
    for (const auto* columns : {&plan.columns, &plan.growing.columns}) {
      for (const Column& column : *columns) {
        if (std::ranges::find(names, column.name()) == names.end()) names.push_back(column.name());
      }
    }
    if (std::ranges::find(names, base.name()) == names.end())
      throw UsageError(fmt::format("--relative-to {}: no such column; give one of {}", base.name(),
                                   fmt::join(names, ", ")));
  }
  view.ranges = ranges_of(command);
  for (size_t i = 0; i < view.ranges.size(); ++i) {
    if (view.ranges[i].to > plan.lengths.back())
      throw UsageError(fmt::format("--ranges {}: the growing context ends at {}; give positions up to there",
                                   command.ranges[i], plan.lengths.back()));
  }
  return view;
}

void publish(const SweepCommand& command, Measurements log) {
  log.view = view_of(command, log.plan);
  const SweepTable table = tabulate(log);
  const bool json = command.files.json;
  publish(command.files, log, table, json ? sweep_json(log, table) : nlohmann::ordered_json(),
          json ? "" : tables_text(table, command.differences));
}

void check_merge_usage(const CLI::App& typed) {
  for (const CLI::Option* option : typed.get_options()) {
    const std::string name = option->get_name();
    static const std::set<std::string> kUsed = {"--merge",       "--report",      "--csv",
                                                "--svg",         "--json",        "--quiet",
                                                "--differences", "--relative-to", "--ranges"};
    if (option->count() > 0 && !kUsed.contains(name))
      throw UsageError(fmt::format("--merge: reports existing results only; omit {}", name));
  }
}

void merge(const SweepCommand& command) {
  const Measurements log = merge_logs(command.merge);
  publish(command, log);
  if (!log.complete() && !command.common.quiet) {
    say("warning: --merge: some results are missing; name the complete results of all shards");
  }
}

// The demo model's folder has a heldout.txt.
std::filesystem::path text_of(const SweepCommand& command) {
  if (!command.sweep.text.empty()) return command.sweep.text;
  std::filesystem::path beside = command.common.model / "heldout.txt";
  std::error_code ec;
  if (std::filesystem::is_regular_file(beside, ec)) return beside;
  if ((command.sweep.perplexity || command.sweep.growing) && !command.common.quiet)
    say("--file: missing, so perplexity is skipped");
  return {};
}

// "out.html" -> "out.jsonl", with shards "out.shard-0-of-4.jsonl".
std::filesystem::path log_beside(const std::filesystem::path& report, int64_t index, int64_t count) {
  std::filesystem::path log = report;
  if (count == 1) return log.replace_extension(".jsonl");
  return log.replace_extension(fmt::format(".shard-{}-of-{}.jsonl", index, count));
}

void publish_shards(const SweepCommand& command, const SweepOptions& options) {
  std::vector<std::filesystem::path> files;
  std::error_code ec;
  std::string names;
  for (int64_t i = 0; i < options.shard_count; ++i) {
    const auto file = log_beside(command.files.report, i, options.shard_count);
    names += " " + file.string();
    if (std::filesystem::exists(file, ec)) files.push_back(file);
  }
  if (static_cast<int64_t>(files.size()) == options.shard_count) {
    const Measurements log = merge_logs(files);
    if (log.complete()) return publish(command, log);
  }
  if (!command.common.quiet) {
    say(fmt::format("shard {} of {} is done; when all are: lariat sweep --merge{} --report {}",
                    options.shard_index, options.shard_count, names, command.files.report.string()));
  }
}

// I from 0 to N - 1
void read_shard(const std::string& text, SweepOptions& sweep) {
  if (text.empty()) return;
  static const std::regex pattern("([0-9]{1,9})/([0-9]{1,9})");
  std::smatch parts;
  if (std::regex_match(text, parts, pattern)) {
    sweep.shard_index = std::stoll(parts[1]);
    sweep.shard_count = std::stoll(parts[2]);
  }
  if (parts.empty() || sweep.shard_index >= sweep.shard_count)
    throw UsageError(
        fmt::format("--shard {}: no shard; write i/n with i from 0 to n - 1, such as 0/4", text));
}

void check_usage(const SweepCommand& command) {
  if (command.files.report.empty()) {
    throw UsageError("--report: missing; give --report OUT.html, results are saved next to it");
  }
  if (!command.merge.empty()) return check_merge_usage(*command.common.command);
  if (!command.shard.empty() && !command.files.results.empty()) {
    for (const char* name : {"--csv", "--svg", "--json"}) {
      if (command.common.command->count(name) > 0)
        throw UsageError(
            fmt::format("--shard with --results: writes only that file; omit {} and pass it to "
                        "--merge",
                        name));
    }
  }
  if (command.common.model.empty()) throw UsageError("--model: missing; give --model DIR, or --merge FILES");
  for (const std::filesystem::path& text : {command.sweep.text, std::filesystem::path(command.haystack)}) {
    if (reads_once(text))
      throw UsageError("--file, --haystack: sweep reads its texts repeatedly, so not " + input_name(text) +
                       "; name a file");
  }
  if (command.common.open.rope.scaling || command.common.open.rope.config) {
    throw UsageError(
        "--rope-scaling, --rope-config: sweep compares several scalings; use --scalings instead");
  }
  if (!command.common.open.position_method.empty())
    throw UsageError("--position-method: sweep compares several methods; use --scalings instead");
}

void warn_of_idle(const CommonOptions& common, const SweepOptions& sweep, const std::string& method) {
  if (!sweep.perplexity) warn_idle(common, {"--method", "--stride"}, "with --no-perplexity");
  if (sweep.reuse.empty()) warn_idle(common, {"--tail", "--check"}, "without --reuse-prefill");
  if (!sweep.reuse.empty()) {
    warn_idle(common,
              {"--method", "--stride", "--growing-step", "--task", "--needles", "--haystack", "--depths",
               "--trials", "--seed"},
              "with --reuse-prefill");
    return;
  }
  if (sweep.perplexity && method == "chunks") warn_idle(common, {"--stride"}, "with --method chunks");
  if (!sweep.growing) warn_idle(common, {"--growing-step"}, "with --no-growing");
  const bool one_needle = sweep.passkeys.needles.task == NeedleTask::kPasskey;
  if (sweep.passkey && !sweep.quick) {
    if (one_needle) warn_idle(common, {"--needles"}, "with --task passkey");
    return;
  }
  warn_idle(common, {"--task", "--needles", "--haystack", "--depths", "--trials", "--seed"},
            sweep.quick ? "with --quick" : "with --no-passkey");
}

// Keeps the lines of units that the log holds: a killed run may have left others.
void resume_losses(const SweepCommand& command, const Measurements& log) {
  constexpr uint64_t kMost = uint64_t{4} << 30;
  const std::filesystem::path& file = command.losses;
  const std::set<std::string> measured = log.keys();
  std::set<std::string> found;
  std::string kept;
  std::error_code ec;
  if (!std::filesystem::is_regular_file(file, ec)) return;
  const std::string text = read_file(file, kMost);
  constexpr std::string_view kStart = R"({"kind":)";
  if (text.substr(0, kStart.size()) != kStart.substr(0, text.size()))
    throw Error(file.string() + ": holds no losses of a sweep; name another file for --losses");
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at + 1);
    const auto json = parse_ordered_json(line, file.string());
    const auto kind = find_kind(json.value("kind", ""));
    if (!kind) continue;
    const Unit unit{*kind, Column(json.value("scaling", "")), json.value("length", int64_t{0})};
    const std::string key = Record::of(unit).key();
    if (measured.contains(key) && found.insert(key).second) kept += line;
  }
  write_file_atomically(file, kept);
  const auto missing = std::ranges::count_if(log.records, [&](const Record& record) {
    return record.loss() != nullptr && !found.contains(record.key());
  });
  if (missing > 0 && !command.common.quiet)
    say(fmt::format("warning: --losses: lacks {} of earlier runs", counted(missing, "result")));
}

void write_losses_to(std::ofstream& losses, const SweepCommand& command, SweepOptions& options) {
  if (command.losses.empty()) return;
  if (options.text.empty() || !(options.perplexity || options.growing))
    throw UsageError("--losses: no perplexity is measured; give --file, or omit --losses");
  options.on_losses = [&](const nlohmann::ordered_json& line) {
    losses << line.dump() << "\n" << std::flush;
    if (!losses) throw Error(command.losses.string() + ": writing failed; check the space on its disk");
  };
}

void run(SweepCommand& command, CommandFiles files) {
  check_usage(command);
  check_result_files(command.files);
  if (!command.merge.empty()) return merge(command);
  command.sweep.passkeys.needles.task = command.tasks.front();
  warn_of_idle(command.common, command.sweep, command.method);
  SweepOptions options = command.sweep;
  options.scalings = whole_columns(options.scalings);
  for (const auto& [from, to] : ranges_of(command)) options.ends.insert(options.ends.end(), {from, to});
  read_shard(command.shard, options);
  const int64_t shards = options.shard_count;
  std::filesystem::path file = command.files.results;
  if (file.empty()) {
    file = log_beside(command.files.report, options.shard_index, shards);
    files.outputs.push_back({"results file " + file.string(), file});
    check_outputs(files);
  }
  options.rope = command.common.open.rope;
  command.common.open.rope.factor.reset();  // applies to the sweep's scalings only
  if (!options.text.empty()) check_text(options.text);
  if (options.passkey) options.passkeys.hay = open_hay(command.haystack);
  const Engine runtime = open_engine(command.common);
  options.text = text_of(command);
  options.method = parse_perplexity_method(command.method);
  options.interrupted = &interrupted();
  std::ofstream losses;
  write_losses_to(losses, command, options);

  const Schedule schedule(runtime, options);
  schedule.check();
  view_of(command, schedule.plan());  // validates in advance
  if (options.passkey) {
    const int64_t longest = schedule.options().lengths.back();
    warn_of_short_hay(options.passkeys, prompt_codec(*runtime.tokenizer), longest, command.common.quiet);
  }
  if (!command.files.resume) {
    set_aside(file, command.common.quiet);
    std::error_code ec;
    if (is_measurement_log(part_file(file))) std::filesystem::remove(part_file(file), ec);
  }
  MeasurementLog log(file, schedule.plan(), command.files.resume);
  if (!command.losses.empty()) {
    if (command.files.resume) resume_losses(command, log.contents());
    losses.open(command.losses, command.files.resume ? std::ios::app : std::ios::trunc);
  }
  Pace pace;
  if (!command.common.quiet) {
    pace = schedule.pace();
    say_plan(schedule, options, pace, log.contents());
  }
  bool all = false;
  {
    Meter meter("sweep", command.common.quiet);
    all = run_sweep(schedule, pace, log, [&](const SweepProgress& at) {
      meter.show(at.done, fmt::format("{} of {} measured, now {}, {} at {}  ", at.finished, at.units,
                                      name_of(at.unit.kind), at.unit.column.name(), at.unit.length));
    });
  }
  if (shards > 1 && command.files.results.empty()) {
    if (all) publish_shards(command, schedule.options());
  } else if (shards == 1) {
    publish(command, log.contents());
  }
  if (!all) throw Error("interrupted; " + file.string() + " keeps the results so far, --resume continues");
}

void add_measuring_options(CLI::App& sub, SweepCommand& command) {
  begin_group(sub, "Measuring");
  SweepOptions& sweep = command.sweep;
  sub.add_flag("--quick", sweep.quick, "measure in minutes: less text, no passkeys, no throughput");
  add_perplexity_options(
      sub, command.method, sweep.stride, sweep.max_tokens,
      {"1/8 of the window, at least 256", "length of the longest window, at least 8192", "0: all"}, false);
  add_passkey_options(sub, sweep.passkeys, command.tasks, command.haystack)->expected(1);
  sub.add_option_function<std::string>(  // without a value: ""
         "--reuse-prefill",
         [&sweep](const std::string& text) { sweep.reuse = text.empty() ? "dynamic-yarn" : text; },
         "prefill each length once, under this scaling; columns re-rotate its keys and score the ends of "
         "windows: fast, approximate")
      ->expected(0, 1)
      ->default_str("dynamic-yarn")
      ->type_name("[SCALING]");
  sub.add_option("--tail", sweep.tail, "with --reuse-prefill: scored tokens per window")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  sub.add_option("--check", sweep.checks,
                 "with --reuse-prefill: columns that are also prefilled by themselves")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
  sub.add_option("--growing-step", sweep.growing_step, "prefill size of the growing context")
      ->default_str("512; 32 with --rope-steps exact")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_output_option(sub, "--losses", command.losses, "write each token's loss as JSON lines");
  const auto leave_out = [&](const char* name, bool& measured, const std::string& what) {
    sub.add_flag_callback(
        name, [&measured] { measured = false; }, "skip " + what + " measurements");
  };
  leave_out("--no-growing", sweep.growing, "growing context");
  leave_out("--no-perplexity", sweep.perplexity, "perplexity");
  leave_out("--no-passkey", sweep.passkey, "passkey");
  leave_out("--no-speed", sweep.speed, "throughput and memory");
}

void add_run_options(CLI::App& sub, SweepCommand& command) {
  begin_group(sub, "Long runs");
  add_output_option(sub, "--results", command.files.results, "results file (JSON lines)");
  sub.add_flag("--resume", command.files.resume, "resume an interrupted sweep");
  sub.add_option("--shard", command.shard, "measure only the I-th of N parts, I from 0")->type_name("I/N");
  sub.add_option("--merge", command.merge, "merge results of several shards into one report");
}

}  // namespace

void add_sweep_command(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  SweepOptions& sweep = command->sweep;
  CLI::App& sub = add_command(
      app, "sweep", "Compare RoPE scalings by perplexity, passkeys and throughput", kMeasureCommands,
      "lariat sweep --model DIR --file book.txt --lengths 4096,16384 --report s.html");
  set_usage(sub, "--model DIR --report FILE [options]\n--merge FILE ... --report FILE");
  add_model_option(sub, command->common, false);
  add_output_option(sub, "--report", command->files.report, "HTML report; results are saved next to it");
  sub.add_option("-f,--file", sweep.text, "text for perplexity; default: heldout.txt in the model's folder");
  add_scalings_option(sub, sweep.scalings)->default_str("none,linear,ntk,dynamic,yarn,dynamic-yarn");
  sub.add_option("--lengths", sweep.lengths, "context lengths in tokens")
      ->delimiter(',')
      ->default_str("1, 2 and 4 times the original length")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 40));
  add_measuring_options(sub, *command);
  add_run_options(sub, *command);
  begin_group(sub, kOutputOptions);
  sub.add_flag("--differences", command->differences, "all paired differences between columns");
  sub.add_option("--relative-to", command->relative_to, "plot ratios to this column")->type_name("COLUMN");
  sub.add_option("--ranges", command->ranges, "positions of a growing context to compare at")
      ->delimiter(',')
      ->type_name("FROM-TO,...");
  add_result_files(sub, command->files, true);
  add_common_options(sub, command->common, {.one_scaling = false});
  begin_group(sub, kRopeOptions);
  sub.add_option_function<std::string>(
         "--rope-cache",
         [command](const std::string& text) {
           command->sweep.stale_too = text == "both";
           command->common.open.stale_cache = text == "stale";
         },
         "growing contexts of dynamic columns with re-rotated keys, stale keys or both")
      ->check(CLI::IsMember({"consistent", "stale", "both"}))
      ->default_str("both");
  begin_group(sub, kMainOptions);
  command->common.other_scalings = true;
  sub.callback([command, &sub] { run(*command, files_of(sub)); });
}

}  // namespace lariat
