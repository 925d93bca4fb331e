#include "engine/eval/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/sweep.h"
#include "engine/eval/render/report.h"
#include "engine/eval/render/results_csv.h"
#include "engine/eval/render/tables.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "tools/generating.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/signals.h"

namespace lariat {
namespace {

struct PasskeyCommand {
  CommonOptions common = CommonOptions::measuring();
  std::vector<int64_t> lengths;
  PasskeyOptions passkeys;
  std::vector<NeedleTask> tasks = {NeedleTask::kPasskey};
  std::string haystack = "noise";
  ResultFiles files;
  bool chat = false;
};

bool several(const PasskeyCommand& command) { return command.tasks.size() > 1; }

Plan plan_of(const PasskeyCommand& command, const Engine& runtime) {
  Plan plan = plan_of(runtime, runtime.session_options, command.lengths);
  plan.passkey = passkey_plan(command.passkeys);
  plan.passkey.chat = command.chat;
  if (const auto& set = command.common.open.template_variables; !set.empty())
    plan.passkey.template_variables = set;
  if (several(command)) plan.passkey.tasks = command.tasks;
  return plan;
}

nlohmann::ordered_json to_json(const PasskeyCell& cell, bool passkey) {
  nlohmann::ordered_json answers = nlohmann::ordered_json::array();
  for (const auto& trial : cell.trials) {
    nlohmann::ordered_json answer = nlohmann::ordered_json::object();
    if (passkey) answer.update({{"key", std::stoll(trial.expected.front())}});
    answer.update({{"answer", trial.answer},
                   {"correct", trial.correct()},
                   {"expected", trial.expected},
                   {"found", trial.found},
                   {"recall", trial.recall()}});
    answers.push_back(answer);
  }
  return {{"length", cell.length},     {"depth", cell.depth},     {"trials", cell.trials.size()},
          {"correct", cell.correct()}, {"recall", cell.recall()}, {"answers", answers}};
}

struct Answers {
  NeedleOptions needles;
  int64_t max_new_tokens = 0;
  std::vector<PasskeyCell> cells{};
  std::vector<Record> records{};  // of the cells
};

nlohmann::ordered_json to_json(const PasskeyCommand& command, const Answers& measured, const Plan& plan,
                               const SweepTable& table) {
  const bool passkey = measured.needles.task == NeedleTask::kPasskey;
  nlohmann::ordered_json results = nlohmann::ordered_json::array(),
                         accuracy = nlohmann::ordered_json::object();
  for (size_t i = 0; i < measured.cells.size(); ++i) {
    results.push_back(to_json(measured.cells[i], passkey));
    results.back().update(to_json(labels_of(plan, measured.records[i])));
  }
  for (const int64_t length : table.lengths) {
    const auto value = table.retrieval(plan.columns.front(), measured.needles.task, length);
    if (value) accuracy[std::to_string(length)] = value->share();
  }
  return {{"task", measured.needles.task},
          {"needles", passkey ? 1 : measured.needles.count},
          {"haystack", command.haystack},
          {"chat", command.chat},
          {"max_new_tokens", measured.max_new_tokens},
          {"results", results},
          {"accuracy", accuracy}};
}

// Fills in defaults; sorts lengths and depths. answer: its tokens.
void complete(PasskeyCommand& command, const Engine& runtime, Session& session, int64_t answer) {
  const bool open = command.lengths.empty();
  if (open) command.lengths = default_passkey_lengths(runtime.session_options.rope->original_ctx);
  sort_unique(command.lengths);
  while (open && command.lengths.size() > 1) {
    const std::string why = why_too_long(session, command.lengths.back() + answer, 2);
    if (why.empty()) break;
    print_warnings({fmt::format("length {} is skipped: {}", command.lengths.back(), why)},
                   command.common.quiet);
    command.lengths.pop_back();
  }
  sort_unique(command.passkeys.depths);
  command.passkeys.interrupted = &interrupted();
}

void publish(const PasskeyCommand& command, const Engine& runtime, const std::vector<Answers>& all,
             bool complete) {
  Measurements records{plan_of(command, runtime)};
  for (const Answers& one : all)
    records.records.insert(records.records.end(), one.records.begin(), one.records.end());
  const SweepTable table = tabulate(records);
  nlohmann::ordered_json tasks;
  for (const Answers& one : all) tasks.push_back(to_json(command, one, records.plan, table));
  nlohmann::ordered_json json = several(command) ? nlohmann::ordered_json{{"tasks", tasks}} : tasks[0];
  json.update({{"complete", complete},
               {"device", runtime.backend->description()},
               {"quantize", runtime.model.quantization()}});
  std::string text;
  for (const RetrievalMap& map : retrieval_maps(table))
    text += (several(command) ? map.name + "\n" : "") + heat_map(table, map);
  publish(command.files, records, table, json, text, json);
}

void run(PasskeyCommand& command) {
  if (command.tasks == std::vector{NeedleTask::kPasskey})
    warn_idle(command.common, {"--needles"}, "with --task passkey");
  command.passkeys.needles.task = command.tasks.front();
  check_result_files(command.files);
  command.passkeys.hay = open_hay(command.haystack);
  const Engine runtime = open_engine(command.common, command.chat ? Reads::kChat : Reads::kText);
  const TextCodec codec = prompt_codec(*runtime.tokenizer, runtime.chat ? &*runtime.chat : nullptr);
  command.passkeys.eos_ids = runtime.eos_ids();
  Session session = runtime.session();
  int64_t answer = 0;
  for (const NeedleTask task : command.tasks)
    answer = std::max(answer, answer_tokens(codec, {task, command.passkeys.needles.count}));
  complete(command, runtime, session, answer);
  warn_of_short_hay(command.passkeys, codec, command.lengths.back(), command.common.quiet);
  const int64_t longest = command.lengths.back();
  check_memory(session, longest + answer, 2, fmt::format("--lengths {}", longest));
  auto log = open_run_log(
      command.files, [&] { return plan_of(command, runtime); }, command.common.quiet);
  std::vector<Answers> all;
  bool whole = true;
  auto meter = std::make_optional<Meter>("passkey", command.common.quiet);
  const auto tasks = static_cast<double>(command.tasks.size());
  for (const NeedleTask task : command.tasks) {
    if (!whole) break;
    const NeedleOptions needles{task, command.passkeys.needles.count};
    const auto before = static_cast<double>(all.size());
    all.push_back({needles, answer_tokens(codec, needles)});
    Measurement what{.kind = Kind::kPasskey,
                     .column = column_of(runtime.session_options),
                     .lengths = command.lengths,
                     .codec = &codec,
                     .passkeys = command.passkeys,
                     .log = log ? &*log : nullptr};
    what.passkeys.needles = needles;
    what.passkeys.max_new_tokens = all.back().max_new_tokens;
    whole = measure(
        session, what,
        [&](const Measured& measured) {
          all.back().cells.push_back(*measured.cell);
          all.back().records.push_back(measured.record);
          std::get<Retrieval>(all.back().records.back().value).task = needles.task;
        },
        [&](double part, const std::string& note) {
          meter->show((before + part) / tasks,
                      (several(command) ? fmt::format("{}, ", name_of(task)) : "") + note);
        });
  }
  meter.reset();
  publish(command, runtime, all, whole);
  if (whole) return;
  size_t cells = 0;
  for (const Answers& one : all) cells += one.cells.size();
  throw Error(fmt::format("interrupted; the results cover {}{}", counted(static_cast<int64_t>(cells), "cell"),
                          log ? ", and --resume continues" : ""));
}

}  // namespace

void add_passkey_command(CLI::App& app) {
  auto command = std::make_shared<PasskeyCommand>();
  CLI::App& sub =
      add_command(app, "passkey", "Retrieval from long texts by length and depth", kMeasureCommands,
                  "lariat passkey --model DIR --lengths 2048,8192 --report passkey.html");
  add_model_option(sub, command->common);
  sub.add_option("--lengths", command->lengths, "prompt lengths in tokens")
      ->delimiter(',')
      ->default_str("half, once and twice the original length")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_passkey_options(sub, command->passkeys, command->tasks, command->haystack)->delimiter(',');
  auto* chat = sub.add_flag("--chat", command->chat, "apply the chat template to the prompt");
  add_template_var_option(sub, command->common)->needs(chat);
  add_output_option(sub, "--report", command->files.report, "write an HTML report");
  add_result_files(sub, command->files, true);
  add_run_log(sub, command->files);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
