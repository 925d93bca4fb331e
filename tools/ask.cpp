#include "engine/eval/measure/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <tuple>

#include "engine/eval/difference.h"
#include "engine/eval/render/sequence_svg.h"
#include "engine/eval/render/sweep_svg.h"
#include "engine/interrupt.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "models/io/text_file.h"
#include "tools/help.h"
#include "tools/json_lines.h"
#include "tools/measuring.h"
#include "tools/signals.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

struct AskCommand {
  CommonOptions common = CommonOptions::measuring();
  std::vector<std::filesystem::path> files;
  std::string metric = "all";
  std::vector<std::string> scalings = {"model"};
  AskOptions ask;
  ResultFiles results;
  std::filesystem::path svg;
  bool no_prefix = false, chat = false;
};

void check_usage(AskCommand& command) {
  const OpenOptions& open = command.common.open;
  if (open.rope.scaling || open.rope.config || !open.position_method.empty())
    throw UsageError(
        "--rope-scaling, --rope-config, --position-method: ask compares several columns; use --scalings");
  command.scalings = whole_columns(command.scalings);
  if (command.ask.stop && command.scalings.size() < 2)
    throw UsageError("--stop: ends comparisons with the first column; give two or more --scalings");
  command.ask.rows.metric = find_metric(command.metric).value();
  command.ask.rows.prefix = !command.no_prefix;
  command.ask.rows.interrupted = &interrupted();
}

struct Rows {
  std::vector<BenchmarkRow> all;
  int64_t refused = 0, longest = 0;  // longest: tokens of a prompt and its answer
};

Rows read_rows(const AskCommand& command, const Engine& engine) {
  const TextCodec codec = prompt_codec(*engine.tokenizer, engine.chat ? &*engine.chat : nullptr);
  Rows rows;
  for (const std::filesystem::path& file : command.files) {
    const std::string name = input_name(file);
    const size_t before = rows.all.size();
    const int64_t refused = rows.refused;
    for_lines(file, [&](int64_t number, const std::string& line) {
      const std::string place = fmt::format("{}: line {}", name, number);
      try {
        const nlohmann::json object = parse_json_object(line, place);
        const JsonFields fields(object, place, "", JsonFields::with_key);
        BenchmarkRow row =
            benchmark_row(fields, {.file = name, .line = number}, codec, *engine.tokenizer, command.ask.rows);
        const int64_t length = row.id.tokens + row.max_new_tokens;
        check_length(engine.session_options, length);
        rows.longest = std::max(rows.longest, length);
        rows.all.push_back(std::move(row));
      } catch (const Error& e) {
        say_refusal(e, place);
        ++rows.refused;
      }
      return true;
    });
    if (rows.all.size() == before && rows.refused == refused)
      throw Error(name + ": has no rows; give one JSON object per line");
  }
  if (rows.all.empty())
    throw Error(
        fmt::format("--file: no usable row; correct the {} named above", counted(rows.refused, "line")));
  return rows;
}

Json interval_json(double low, double high) { return {{"low", 100 * low}, {"high", 100 * high}}; }

// A column's score over a file's rows ("": all rows); without --stop with its 95 % interval.
Json score_json(const AskCommand& command, const Asking& asking, const AskedColumn& column,
                const std::string& file) {
  LossSum scores;
  int64_t nulls = 0;
  for (size_t i = 0; i < column.scores.size(); ++i) {
    if (!file.empty() && asking.rows()[i].id.file != file) continue;
    scores.add(column.scores[i]);
    nulls += column.empty[i] ? 1 : 0;
  }
  Json json = {{"scaling", column.column}};
  if (!file.empty()) json["file"] = file;
  if (column.rope_factor) json["rope_factor"] = *column.rope_factor;
  json["score"] = 100 * scores.mean();
  const double half = k95 * scores.mean_error();
  auto [low, high] = std::pair(std::max(0.0, scores.mean() - half), std::min(1.0, scores.mean() + half));
  if (asking.is_binary()) std::tie(low, high) = RetrievalValue{scores.tokens, scores.nll}.interval();
  if (!command.ask.stop) json.update(interval_json(low, high));
  json.update({{"rows", scores.tokens}, {"nulls", nulls}});
  return json;
}

// Paired difference of a column from the first one, with --stop valid at any row.
Json difference_json(const Asking& asking, size_t i) {
  const AskedColumn &column = asking.columns()[i], &first = asking.columns()[0];
  const size_t rows = column.scores.size();
  const auto paired = [&](const AskedColumn& one) {
    LossColumn scores{
        one.column, 0, NAN, {one.scores.begin(), one.scores.begin() + std::ssize(column.scores)}, 1};
    for (const double score : scores.blocks) scores.value += score / static_cast<double>(rows);
    return scores;
  };
  const Gap found = gap(paired(first), paired(column));
  Json json = {{"scaling", column.column}, {"from", first.column}, {"difference", 100 * found.value}};
  auto [low, high] = std::pair(std::max(found.low_95, -1.0), std::min(found.high_95, 1.0));
  if (found.error == 0) low = high = NAN;  // equal differences in all rows give no standard error
  const auto* const last = column.sequence.empty() ? nullptr : &column.sequence.back();
  if (last != nullptr) std::tie(low, high) = std::pair(last->low, last->high);
  json.update(interval_json(low, high));
  if (last != nullptr)
    json.update({{"e_value", last->e_value},
                 {"verdict", name_of(column.verdict)},
                 {"rows", rows},
                 {"saved", asking.rows().size() - rows}});
  return json;
}

std::string text_of(const AskCommand& command, const Json& results, const Json& differences) {
  const auto interval = [](const Json& json) {
    if (!json.contains("low") || !std::isfinite(json["low"].get<double>())) return std::string();
    return fmt::format(", {:.2f} to {:.2f}", json["low"].get<double>(), json["high"].get<double>());
  };
  const auto name = [](const Json& json, const char* key) { return json.value(key, ""); };
  std::string text = fmt::format("{}: {}\n", command.metric, row_of(command.ask.rows.metric).rule);
  for (const Json& json : results) {
    const std::string file = command.files.size() > 1 ? json.value("file", "all rows") + ", " : "";
    text += fmt::format("{}{}: {:.2f}{} ({}, {} empty)\n", file, name(json, "scaling"),
                        json["score"].get<double>(), interval(json),
                        counted(json["rows"].get<int64_t>(), "row"), json["nulls"].get<int64_t>());
  }
  for (const Json& json : differences) {
    text += fmt::format("{} minus {}: {:+.2f}{}", name(json, "scaling"), name(json, "from"),
                        json["difference"].get<double>(), interval(json));
    if (json.contains("verdict")) {
      const std::string verdict = json["verdict"],
                        margin = fmt::format(" within {:g}", 100 * command.ask.margin);
      text += fmt::format("; {}{} after {}, {} saved", verdict, verdict == "excluded" ? margin : "",
                          counted(json["rows"].get<int64_t>(), "row"), json["saved"].get<int64_t>());
    }
    text += "\n";
  }
  return text;
}

void publish(const AskCommand& command, const Asking& asking, const Rows& rows, bool complete) {
  Json results = Json::array(), differences = Json::array();
  std::vector<std::string> files;
  for (const std::filesystem::path& file : command.files) files.push_back(input_name(file));
  if (files.size() > 1) files.emplace_back();
  for (const std::string& file : files) {
    for (const AskedColumn& column : asking.columns())
      results.push_back(score_json(command, asking, column, file));
  }
  for (size_t i = 1; i < asking.columns().size(); ++i) differences.push_back(difference_json(asking, i));
  if (!command.svg.empty()) {
    std::vector<PairedCurve> curves;
    for (const AskedColumn& column : asking.columns()) {
      if (!column.sequence.empty())
        curves.push_back({column.column, std::string(name_of(column.verdict)), column.sequence});
    }
    write_file_atomically(command.svg, svg_file(sequence_svg(asking.columns()[0].column, curves,
                                                             asking.threshold(), command.ask.margin)));
  }
  if (command.results.json) {
    print_json({{"metric", command.metric},
                {"rule", row_of(command.ask.rows.metric).rule},
                {"results", results},
                {"differences", differences},
                {"refused", rows.refused},
                {"complete", complete}});
  } else {
    std::cout << text_of(command, results, differences) << std::flush;
  }
}

void run(AskCommand& command) {
  check_usage(command);
  for (const std::filesystem::path& file : command.files) check_text(file);
  const Engine engine = open_engine(command.common, command.chat ? Reads::kChat : Reads::kText);
  command.ask.rows.eos_ids = engine.eos_ids();
  Rows rows;
  if (!uninterrupted([&] { rows = read_rows(command, engine); }))
    throw Error("interrupted before the first answer");
  SweepOptions sweep;
  sweep.scalings = command.scalings;
  sweep.lengths = {rows.longest};
  sweep.rope = command.common.open.rope;
  sweep.growing = sweep.perplexity = sweep.passkey = sweep.speed = false;
  const Schedule schedule(engine, sweep);
  auto log = open_run_log(
      command.results,
      [&] {
        Plan plan = schedule.plan();
        plan.rows =
            PlanRows{command.metric, !command.no_prefix, command.chat, command.ask.rows.max_new_tokens};
        if (const auto& set = command.common.open.template_variables; !set.empty())
          plan.rows->template_variables = set;
        return plan;
      },
      command.common.quiet);
  Asking asking(schedule, std::move(rows.all), command.ask, log ? &*log : nullptr);
  bool complete = false;
  {
    Meter meter("ask", command.common.quiet);
    complete = asking.run([&](double done, const std::string& note) { meter.show(done, note); });
  }
  publish(command, asking, rows, complete);
  if (!complete)
    throw Error(fmt::format("interrupted after {} of {}{}", asking.columns()[0].scores.size(),
                            counted(std::ssize(asking.rows()), "row"), log ? "; --resume continues" : ""));
  if (rows.refused > 0)
    throw Error(fmt::format("{} refused, the other rows were scored; correct the lines named above",
                            counted(rows.refused, "row")));
}

}  // namespace

void add_ask_command(CLI::App& app) {
  auto command = std::make_shared<AskCommand>();
  CLI::App& sub = add_command(app, "ask", "Scores on rows of RULER and other benchmarks", kMeasureCommands,
                              "lariat ask --model DIR --file niah_single_1.jsonl --scalings none,yarn");
  add_model_option(sub, command->common);
  sub.add_option("-f,--file", command->files,
                 "JSON lines: a prompt and its references (repeatable); -: standard input")
      ->required();
  std::vector<std::string> metrics;
  for (const MetricRow& row : kMetrics) metrics.emplace_back(row.name);
  sub.add_option("--metric", command->metric, "score of an answer; RULER: all, for qa part")
      ->check(CLI::IsMember(metrics));
  sub.add_flag("--no-prefix", command->no_prefix, "omit answer_prefix, as RULER did from 2025-01 to 2026-07");
  auto* chat =
      sub.add_flag("--chat", command->chat, "apply the chat template; answer_prefix begins the answer");
  add_template_var_option(sub, command->common)->needs(chat);
  sub.add_option("-n,--max-new-tokens", command->ask.rows.max_new_tokens, "maximum new tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->default_str("the tokens reserved in RULER's length, else 128");
  add_scalings_option(sub, command->scalings)->default_str("model");
  auto* stop =
      sub.add_option("--stop", command->ask.stop, "drop decided columns; F: probability of a false verdict")
          ->check(CLI::Range(1e-6, 0.5));
  sub.add_option("--margin", command->ask.margin, "difference that --stop excludes; 0.1: 10 points")
      ->check(CLI::Range(0.001, 0.999))
      ->needs(stop);
  add_output_option(sub, "--svg", command->svg, "write the differences by row, until --stop decides")
      ->needs(stop)
      ->group(kOutputOptions);
  sub.add_flag("--json", command->results.json, "one JSON object on stdout")->group(kOutputOptions);
  add_run_log(sub, command->results);
  add_common_options(sub, command->common, {.one_scaling = false});
  command->common.other_scalings = true;
  sub.callback([command] { run(*command); });
}

}  // namespace lariat
