#include "tools/perplexity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/saved_context.h"
#include "engine/eval/measure/measure.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/render/results_csv.h"
#include "engine/eval/render/tables.h"
#include "kernels/counted.h"
#include "models/io/atomic_file.h"
#include "models/io/text_file.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/signals.h"

namespace lariat {
namespace {

struct Scored {
  Record record;
  std::vector<float> losses;
  const Loss& loss() const { return *record.loss(); }
};

// A result of `--method` with steps.
bool has_steps(const std::string& method) { return method == "growing" || method == "anchored"; }

std::string position_rows(const Loss& loss) {
  std::vector<std::vector<std::string>> rows = {{"positions", "tokens", "nats/token", "perplexity", ""}};
  for (const PositionLoss& at : loss.positions) {
    if (at.tokens == 0) continue;  // not reached
    const double ppl = std::exp(at.loss);
    rows.push_back({fmt::format("{} - {}", at.from, at.to - 1), std::to_string(at.tokens), fixed(at.loss, 4),
                    fixed(ppl, 4), margin(ppl * at.error, 4)});
  }
  return aligned_table(rows) + "\n";
}

std::string table_of(const std::vector<Scored>& results, const std::string& method) {
  std::string text;
  for (const Scored& result : results) {
    if (has_steps(method)) text += position_rows(result.loss());
  }
  std::vector<std::vector<std::string>> rows = {{"ctx", "stride", "tokens", "nats/token", "perplexity", ""}};
  for (const Scored& result : results) {
    const Loss& loss = result.loss();
    rows.push_back({std::to_string(result.record.length), loss.stride ? std::to_string(*loss.stride) : "-",
                    std::to_string(loss.tokens), fixed(loss.nll / static_cast<double>(loss.tokens), 4),
                    fixed(loss.ppl, 4), margin(loss.error, 4)});
  }
  return text + aligned_table(rows);
}

// One JSON line per length, and a last line with the token ids.
void write_losses(const std::filesystem::path& file, const std::vector<Scored>& results,
                  const std::string& method, const TokenSource& text) {
  std::string lines;
  for (const Scored& result : results) {
    nlohmann::ordered_json line = {
        {"ctx", result.record.length}, {"window_method", method}, {"losses", losses_json(result.losses)}};
    lines += line.dump() + "\n";
  }
  const auto tokens = text.range(0, text.size());
  lines += nlohmann::ordered_json{{"tokens", std::vector(tokens.begin(), tokens.end())}}.dump() + "\n";
  write_file_atomically(file, lines);
}

// NaN becomes null.
nlohmann::ordered_json to_json(const Record& record, const Plan& plan, bool complete) {
  const Loss& loss = *record.loss();
  nlohmann::ordered_json json = {
      {"ctx", record.length}, {"stride", nullptr},    {"tokens", loss.tokens}, {"nll", loss.nll},
      {"ppl", loss.ppl},      {"stderr", loss.error}, {"complete", complete},  {"positions", loss.positions}};
  if (loss.stride) json.update({{"stride", *loss.stride}});
  if (has_steps(plan.perplexity.method)) json.update({{"step", *plan.perplexity.step}});
  json.update(to_json(record.unit()));
  json.update(to_json(labels_of(plan, record)));
  return json;
}

// context_tokens: tokens before a text scored in one piece.
void publish(const PerplexityCommand& command, const Engine& engine, const Plan& plan,
             const std::vector<Scored>& results, bool complete, size_t context_tokens) {
  Measurements records{plan};
  nlohmann::ordered_json rows;
  for (const Scored& result : results) {
    records.records.push_back(result.record);
    rows.push_back(to_json(result.record, plan, complete));
  }
  nlohmann::ordered_json json = {{"results", rows}};
  if (command.one_piece()) json.update({{"context_tokens", context_tokens}});
  json.update({{"device", engine.backend->description()}, {"quantize", engine.model.quantization()}});
  publish(command.files, records, tabulate(records), json, table_of(results, plan.perplexity.method));
}

void run(const PerplexityCommand& command) {
  const bool one_piece = command.one_piece();
  if (!command.files.results.empty() && (one_piece || reads_once(command.file)))
    throw UsageError(
        "--results: needs windows over a file, read repeatedly; omit --load-cache, --save-cache, -f - and "
        "pipes");
  if (!command.against.reference.empty()) return run_divergence(command);
  const CLI::App& typed = *command.common.command;
  if (one_piece &&
      typed.count("--ctx") + typed.count("--stride") + typed.count("--step") + typed.count("--method") > 0) {
    throw UsageError(
        "--load-cache, --save-cache: score the text in one piece; omit --ctx, --stride, --step and "
        "--method");
  }
  check_result_files(command.files);
  check_text(command.file);
  const Engine runtime = open_engine(command.common);
  const Tokenizer& tokenizer = *runtime.tokenizer;
  const TokenSource source = read_tokens(command.file, tokenizer, command.max_tokens.value_or(0));
  PerplexityOptions options = options_of(command, runtime, source);
  auto log = open_run_log(
      command.files, [&] { return plan_of(command, runtime, options, file_fingerprint(command.file)); },
      command.common.quiet);
  Session session = runtime.session();
  SavedContext context{session.new_sequence(), {}};
  if (!command.load_cache.empty()) context = load_contexts(session, tokenizer, command.load_cache);
  const size_t context_tokens = context.tokens.size();
  const Column column = column_of(runtime.session_options);
  const bool grows = options.method == PerplexityMethod::kGrowing;
  std::vector<Scored> results;
  bool complete = false;
  Plan plan = plan_of(command, runtime, options, std::nullopt);
  {
    Meter meter("perplexity", command.common.quiet);
    if (one_piece) {
      const PerplexityResult result =
          measure_continuation(session, context.sequence, context.tokens, source, options,
                               [&](const PerplexityProgress& at) { meter.show(at.share(), ""); });
      complete = result.complete;
      results.push_back({record_of(result, column), result.losses});
      plan.perplexity.method = name_of(result.method);
    } else {
      const Measurement what{.kind = grows ? Kind::kGrowing : Kind::kPerplexity,
                             .column = column,
                             .lengths = options.ctx,
                             .text = &source,
                             .losses = options,
                             .log = log ? &*log : nullptr};
      complete = measure(
          session, what,
          [&](const Measured& measured) {
            results.push_back({measured.record, *measured.losses});
          },
          [&](double share, const std::string& note) { meter.show(share, note); });
    }
  }
  if (!command.losses.empty()) write_losses(command.losses, results, plan.perplexity.method, source);
  publish(command, runtime, plan, results, complete, context_tokens);
  if (!complete) {
    const bool unsaved = !command.save_cache.empty();
    throw Error(fmt::format("interrupted; the results cover the first {} scored{}",
                            counted(results.front().loss().tokens, "token"),
                            unsaved ? ", and " + command.save_cache.string() + " was not written"
                            : log   ? ", and --resume continues"
                                    : ""));
  }
  // Saved last, so an error loses no results.
  if (!command.save_cache.empty())
    save_context(session, context.sequence, context.tokens, command.save_cache);
}

}  // namespace

Plan plan_of(const PerplexityCommand& command, const Engine& engine, const PerplexityOptions& options,
             std::optional<std::string> fingerprint) {
  Plan plan = plan_of(engine, engine.session_options, options.ctx);
  plan.text = TextFile{.name = input_name(command.file.filename()), .fingerprint = std::move(fingerprint)};
  plan.perplexity = perplexity_plan(options, command.max_tokens.value_or(0));
  return plan;
}

PerplexityOptions options_of(const PerplexityCommand& command, const Engine& engine,
                             const TokenSource& text) {
  const std::string with_method = "with --method " + command.method;
  const bool growing = command.method == "growing";
  const bool anchored = command.method == "anchored";
  const PerplexityMethod method = parse_perplexity_method(command.method);
  if (!uses_step(method)) warn_idle(command.common, {"--step"}, with_method);
  if (anchored) warn_idle(command.common, {"--buckets"}, with_method);
  if (command.method != "sliding") warn_idle(command.common, {"--stride"}, with_method);
  if (!growing && !anchored && !command.files.json)
    warn_idle(command.common, {"--buckets"}, "without --json");
  PerplexityOptions options{
      .ctx = command.ctx,
      .stride = command.stride,
      .step = command.step > 0 ? command.step : default_step(engine.session_options, method),
      .method = method,
      .bos = text_bos(*engine.tokenizer),
      .buckets = static_cast<int>(std::min<int64_t>(command.buckets[0], 1 << 20)),
      .interrupted = &interrupted()};
  if (command.buckets.size() > 1) options.ends = command.buckets;
  if (!std::ranges::is_sorted(options.ends, std::less_equal()))
    throw UsageError("--buckets: the ends do not rise; give them in rising order, such as 8192,12288,16384");
  if (!options.ctx.empty()) return options;
  const auto wanted = [&](int64_t tokens) {
    return default_ctx(options, engine.session_options.rope->original_ctx, tokens);
  };
  options.ctx = {wanted(text.size())};
  if (options.ctx[0] < wanted(int64_t{1} << 40) && !command.one_piece() && !command.common.quiet)
    say(fmt::format("{}: has {}, so --ctx is {}", text.name(), counted(text.size(), "token"),
                    options.ctx[0]));
  return options;
}

void add_perplexity_command(CLI::App& app) {
  auto command = std::make_shared<PerplexityCommand>();
  CLI::App& sub = add_command(app, "perplexity", "Perplexity of a text by context length", kMeasureCommands,
                              "lariat perplexity --model DIR --file book.txt --ctx 2048,8192");
  add_model_option(sub, command->common);
  sub.add_option("-f,--file", command->file, "text file; -: standard input")->required();
  add_common_options(sub, command->common, {.ctx = false});  // a list of lengths here
  sub.add_option("-c,--ctx", command->ctx, "tokens per window")
      ->delimiter(',')
      ->default_str("original length, at most 2048; growing: twice it")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 40));
  add_perplexity_options(sub, command->method, command->stride, command->max_tokens,
                         {std::to_string(command->stride), "all", "growing: N / --ctx contexts"}, true);
  sub.add_option("--step", command->step, "tokens per growing step, anchored window or tail")
      ->default_str("512; growing with --rope-steps exact: 32")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  sub.add_option("--buckets", command->buckets, "number or ends of position buckets for reported losses")
      ->delimiter(',')
      ->default_str("32")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_context_options(sub, command->load_cache, "score the text as one continuation of a saved context");
  add_output_option(sub, "--save-cache", command->save_cache,
                    "score the text in one piece and save its context");
  add_output_option(sub, "--losses", command->losses, "write each token's loss as JSON lines");
  add_result_files(sub, command->files, false);
  add_run_log(sub, command->files);
  add_against_options(sub, command->against);
  sub.callback([command] {
    command->common.other_scalings = command->against.rope_scaling.has_value();
    begin_context(command->load_cache.file, command->save_cache, command->common.quiet);
    run(*command);
  });
}

}  // namespace lariat
