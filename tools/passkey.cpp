#include "engine/eval/passkey.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "engine/eval/report.h"
#include "engine/eval/sweep.h"
#include "engine/memory_check.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "tools/generating.h"
#include "tools/help.h"
#include "tools/measuring.h"

namespace lariat {
namespace {

struct PasskeyCommand {
  CommonOptions common;
  std::vector<int64_t> lengths;
  PasskeyOptions passkeys;
  std::string haystack = "noise";
  std::filesystem::path report;
  bool chat = false, json = false;
};

// Says how it is measured, in the form of a sweep's header.
nlohmann::ordered_json header_of(const PasskeyCommand& command, const Engine& runtime) {
  const PasskeyOptions& passkeys = command.passkeys;
  const RopeScaling& rope = *runtime.session.rope;
  const nlohmann::ordered_json not_measured = {{"measured", false}};
  const auto dir = std::filesystem::absolute(runtime.model.spec.file).parent_path();
  const bool unscaled = rope.type == RopeType::kDefault;
  return {{"model", {{"name", dir.filename().string()}}},
          {"original_ctx", rope.original_ctx},
          {"scalings", {unscaled ? "none" : name_of(rope.type)}},
          {"lengths", command.lengths},
          {"growing", not_measured},
          {"perplexity", not_measured},
          {"passkey",
           {{"measured", true},
            {"depths", passkeys.depths},
            {"trials", passkeys.trials},
            {"seed", passkeys.seed},
            {"task", name_of(passkeys.needles.task)}}},
          {"speed", not_measured},
          {"options",
           {{"backend", runtime.backend->name()},
            {"dtype", name_of(runtime.model.weights.dtype)},
            {"k_dtype", name_of(runtime.session.k_dtype)},
            {"v_dtype", name_of(runtime.session.v_dtype)},
            {"factor", rope.factor},
            {"stale_cache", runtime.session.stale_cache}}}};
}

nlohmann::ordered_json to_json(const PasskeyCell& cell, bool passkey) {
  nlohmann::ordered_json answers = nlohmann::ordered_json::array();
  for (const auto& trial : cell.trials) {
    nlohmann::ordered_json answer;
    if (passkey) answer["key"] = std::stoll(trial.expected.front());
    answer["answer"] = trial.answer;
    answer["correct"] = trial.correct();
    answer.update({{"expected", trial.expected}, {"found", trial.found}, {"recall", trial.recall()}});
    answers.push_back(answer);
  }
  return {{"length", cell.length},     {"depth", cell.depth},     {"trials", cell.trials.size()},
          {"correct", cell.correct()}, {"recall", cell.recall()}, {"answers", answers}};
}

nlohmann::ordered_json to_json(const PasskeyCommand& command, const std::vector<PasskeyCell>& cells,
                               const SweepTable& table, bool complete) {
  const NeedleOptions& needles = command.passkeys.needles;
  const bool passkey = needles.task == NeedleTask::kPasskey;
  nlohmann::ordered_json json = {{"task", name_of(needles.task)},
                                 {"needles", passkey ? 1 : needles.count},
                                 {"haystack", command.haystack},
                                 {"chat", command.chat},
                                 {"max_new_tokens", command.passkeys.max_new_tokens},
                                 {"results", nlohmann::ordered_json::array()},
                                 {"accuracy", nlohmann::ordered_json::object()},
                                 {"complete", complete}};
  for (const auto& cell : cells) json["results"].push_back(to_json(cell, passkey));
  for (const int64_t length : table.lengths) {
    const auto value = table.retrieval(table.scalings[0], length);
    if (value) json["accuracy"][std::to_string(length)] = value->share();
  }
  return json;
}

// The options as they will be used: sorted, without repetitions, with the defaults filled in.
void complete(PasskeyCommand& command, const Engine& runtime, Session& session) {
  const bool open = command.lengths.empty();
  if (open) command.lengths = default_passkey_lengths(runtime.session.rope->original_ctx);
  sort_unique(command.lengths);
  while (open && command.lengths.size() > 1 && !fits_memory(session, command.lengths.back(), 2)) {
    print_warnings({fmt::format("the length {} is left out: its cache is larger than the memory that is free",
                                command.lengths.back())},
                   command.common.quiet);
    command.lengths.pop_back();
  }
  sort_unique(command.passkeys.depths);
  command.passkeys.interrupted = &interrupted();
}

// Measures every length, the shortest first; false when it was interrupted.
bool measure(const PasskeyCommand& command, Session& session, const TextCodec& codec,
             std::vector<PasskeyCell>& cells) {
  const int64_t longest = command.lengths.back();
  check_memory(session, longest, 2, fmt::format("a passkey length of {}", longest));
  Meter meter("passkey", command.common.quiet);
  double total = 0, before = 0;
  for (const int64_t length : command.lengths) total += static_cast<double>(length);
  for (const int64_t length : command.lengths) {
    double found = 0, trials = 0;
    const auto on_cell = [&](const PasskeyCell& cell) {
      found += cell.recall();
      trials += static_cast<double>(cell.trials.size());
      cells.push_back(cell);
    };
    const auto show = [&](double part) {
      const std::string share = trials > 0 ? fmt::format(", found {:.0f} %", 100 * found / trials) : "";
      meter.show((before + part * static_cast<double>(length)) / total,
                 fmt::format("{}{}  ", counted(length, "token"), share));
    };
    if (!measure_passkey(session, codec, length, command.passkeys, on_cell, show)) return false;
    before += static_cast<double>(length);
  }
  return true;
}

void run(PasskeyCommand& command) {
  if (command.passkeys.needles.task == NeedleTask::kPasskey)
    warn_idle(command.common, {"--needles"}, "with --task passkey");
  command.passkeys.hay = open_hay(command.haystack);
  const Engine runtime = open_engine(command.common, command.chat ? Reads::kChat : Reads::kText);
  const TextCodec codec = prompt_codec(*runtime.tokenizer, runtime.chat ? &*runtime.chat : nullptr);
  command.passkeys.max_new_tokens = answer_tokens(codec, command.passkeys.needles);
  command.passkeys.eos_ids = runtime.eos_ids();
  Session session(runtime.model, *runtime.backend, runtime.session);
  complete(command, runtime, session);
  warn_of_short_hay(command.passkeys, codec, command.lengths.back(), command.common.quiet);
  std::vector<PasskeyCell> cells;
  const bool all = measure(command, session, codec, cells);

  SweepRecords records{header_of(command, runtime), {}};
  const std::string scaling = records.header["scalings"][0];
  for (const auto& cell : cells)
    records.records.push_back(passkey_record(scaling, cell, command.passkeys.needles.task));
  const SweepTable table = tabulate(records);
  nlohmann::ordered_json json = to_json(command, cells, table, all);
  json["quantize"] = runtime.model.quantization();
  if (!command.report.empty()) {
    nlohmann::ordered_json data = json;
    data["sweep"] = records.header;
    data["things"] = things_of(command.passkeys.needles.task);
    data["hidden"] = hidden_in(command.passkeys.needles, command.passkeys.hay->file.filename().string());
    write_file_atomically(command.report, report_page(data));
  }
  if (command.json) {
    print_json(json);
  } else {
    std::cout << heat_map(table, scaling) << std::flush;
  }
  if (!all)
    throw Error(fmt::format("interrupted; the results are those of {}", counted(cells.size(), "cell")));
}

}  // namespace

void add_passkey_command(CLI::App& app) {
  auto command = std::make_shared<PasskeyCommand>();
  CLI::App& sub = add_command(
      app, "passkey", "Find what is hidden in a long text, by length and depth", kMeasureCommands,
      "lariat passkey --model DIR --lengths 2048,8192 --rope-scaling dynamic-yarn --report passkey.html");
  add_model_option(sub, command->common);
  sub.add_option("--lengths", command->lengths, "prompt lengths in tokens")
      ->delimiter(',')
      ->default_str("half, once and twice the original length")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_passkey_options(sub, command->passkeys, command->haystack);
  auto* chat = sub.add_flag("--chat", command->chat,
                            "the prompt is a user's message, put into the model's chat template");
  add_template_var_option(sub, command->common)->needs(chat);
  add_output_option(sub, "--report", command->report, "write the result as an HTML page");
  sub.add_flag("--json", command->json, "one JSON object on stdout")->group(kOutputOptions);
  add_common_options(sub, command->common);
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
