#include "tools/perplexity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/saved_context.h"
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

std::string position_rows(const PerplexityResult& result) {
  std::vector<std::vector<std::string>> rows = {{"positions", "tokens", "nats/token", "perplexity", ""}};
  for (const auto& bucket : result.positions) {
    if (bucket.tokens == 0) continue;  // not reached
    rows.push_back({fmt::format("{} - {}", bucket.from, bucket.to - 1), std::to_string(bucket.tokens),
                    fixed(bucket.mean(), 4), fixed(bucket.ppl(), 4), margin(bucket.standard_error(), 4)});
  }
  return aligned_table(rows) + "\n";
}

std::string table_of(const std::vector<PerplexityResult>& results) {
  std::string text;
  for (const auto& result : results) {
    if (result.step > 0) text += position_rows(result);
  }
  std::vector<std::vector<std::string>> rows = {{"ctx", "stride", "tokens", "nats/token", "perplexity", ""}};
  for (const auto& result : results) {
    rows.push_back({std::to_string(result.ctx), result.stride > 0 ? std::to_string(result.stride) : "-",
                    std::to_string(result.tokens), fixed(result.mean(), 4), fixed(result.ppl(), 4),
                    margin(result.standard_error(), 4)});
  }
  return text + aligned_table(rows);
}

// One JSON line per length, and a last line with the token ids.
void write_losses(const std::filesystem::path& file, const std::vector<PerplexityResult>& results,
                  const TokenSource& text) {
  std::string lines;
  for (const auto& result : results) {
    nlohmann::ordered_json line = {{"ctx", result.ctx},
                                   {"window_method", name_of(result.method)},
                                   {"losses", losses_json(result.losses)}};
    lines += line.dump() + "\n";
  }
  const auto tokens = text.range(0, text.size());
  lines += nlohmann::ordered_json{{"tokens", std::vector(tokens.begin(), tokens.end())}}.dump() + "\n";
  write_file_atomically(file, lines);
}

// Logs also store the text's `fingerprint`.
Plan plan_of(const PerplexityCommand& command, const Engine& engine, const PerplexityOptions& options,
             std::optional<std::string> fingerprint) {
  Plan plan = plan_of(engine, engine.session_options, options.ctx);
  plan.text = TextFile{.name = input_name(command.file.filename()), .fingerprint = std::move(fingerprint)};
  plan.perplexity = {.measured = true,
                     .method = std::string(name_of(options.method)),
                     .stride = options.stride,
                     .step = options.step,
                     .max_tokens = command.max_tokens.value_or(0),
                     .buckets = options.buckets,
                     .ends = options.ends};
  return plan;
}

Record record_of(const PerplexityResult& result, const Engine& engine) {
  Growing losses{loss_of(result, result.stride > 0 ? std::optional(result.stride) : std::nullopt)};
  losses.positions = losses_of(result.positions);
  Record record{column_of(engine.session_options), result.ctx, losses};
  if (result.method != PerplexityMethod::kGrowing) record.value = static_cast<Loss>(losses);
  return record;
}

// NaN becomes null.
nlohmann::ordered_json to_json(const PerplexityResult& result, const Plan& plan, const Record& record) {
  const Loss& loss = *record.loss();
  nlohmann::ordered_json json = {{"ctx", result.ctx},
                                 {"stride", nullptr},
                                 {"tokens", loss.tokens},
                                 {"nll", loss.nll},
                                 {"ppl", loss.ppl},
                                 {"stderr", loss.error},
                                 {"complete", result.complete},
                                 {"positions", loss.positions}};
  if (loss.stride) json.update({{"stride", *loss.stride}});
  if (result.step > 0) json.update({{"step", result.step}});
  json.update(to_json(record.unit()));
  json.update(to_json(labels_of(plan, record)));
  return json;
}

std::string running_values(std::span<const PerplexityResult> results) {
  std::string text;
  for (const auto& result : results) text += fmt::format("ppl({}) {}  ", result.ctx, fixed(result.ppl(), 3));
  return text;
}

// context_tokens: tokens before a text scored in one piece.
void publish(const PerplexityCommand& command, const Engine& engine, const Plan& plan,
             const std::vector<PerplexityResult>& results, size_t context_tokens) {
  Measurements records{plan};
  records.plan.perplexity.method = name_of(results.front().method);  // one piece: not the option's
  nlohmann::ordered_json rows;
  for (const auto& result : results) {
    records.records.push_back(record_of(result, engine));
    rows.push_back(to_json(result, records.plan, records.records.back()));
  }
  nlohmann::ordered_json json = {{"results", rows}};
  if (command.one_piece()) json.update({{"context_tokens", context_tokens}});
  json.update({{"device", engine.backend->description()}, {"quantize", engine.model.quantization()}});
  publish(command.files, records, json, table_of(results));
}

void run(const PerplexityCommand& command) {
  if (!command.against.reference.empty()) return run_divergence(command);
  const bool one_piece = command.one_piece();
  if (!command.files.results.empty() && (one_piece || reads_once(command.file)))
    throw UsageError(
        "--results: needs windows over a file, read repeatedly; omit --load-cache, --save-cache, -f - and "
        "pipes");
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
  std::optional<LossJournal> journal;
  if (log) {
    journal.emplace(*log, column_of(runtime.session_options), std::ranges::max(options.ctx), std::nullopt,
                    /*asked_for=*/true);
    options.journal = &*journal;
  }
  Session session = runtime.session();
  SavedContext context{session.new_sequence(), {}};
  if (!command.load_cache.empty()) context = load_contexts(session, tokenizer, command.load_cache);
  const size_t context_tokens = context.tokens.size();
  std::vector<PerplexityResult> results;
  {
    Meter meter("perplexity", command.common.quiet);
    const auto show = [&](const PerplexityProgress& at) {
      meter.show(at.share(), running_values(at.results));
    };
    if (one_piece) {
      results.push_back(
          measure_continuation(session, context.sequence, context.tokens, source, options, show));
    } else {
      results = measure_perplexity(session, source, options, show);
    }
  }
  if (!command.losses.empty()) write_losses(command.losses, results, source);
  publish(command, runtime, plan_of(command, runtime, options, std::nullopt), results, context_tokens);
  if (!results.front().complete) {
    const bool unsaved = !command.save_cache.empty();
    throw Error(fmt::format("interrupted; the results cover the first {} scored{}",
                            counted(results.front().tokens, "token"),
                            unsaved ? ", and " + command.save_cache.string() + " was not written"
                            : log   ? ", and --resume continues"
                                    : ""));
  }
  // Saved last, so an error loses no results.
  if (!command.save_cache.empty())
    save_context(session, context.sequence, context.tokens, command.save_cache);
}

}  // namespace

PerplexityOptions options_of(const PerplexityCommand& command, const Engine& engine,
                             const TokenSource& text) {
  const std::string with_method = "with --method " + command.method;
  const bool growing = command.method == "growing";
  const bool anchored = command.method == "anchored";
  if (!growing && !anchored) warn_idle(command.common, {"--step"}, with_method);
  if (anchored) warn_idle(command.common, {"--buckets"}, with_method);
  if (command.method != "sliding") warn_idle(command.common, {"--stride"}, with_method);
  if (!growing && !anchored && !command.files.json)
    warn_idle(command.common, {"--buckets"}, "without --json");
  const int64_t usual = anchored ? PerplexityOptions().step : default_step(engine.session_options);
  PerplexityOptions options{.ctx = command.ctx,
                            .stride = command.stride,
                            .step = command.step > 0 ? command.step : usual,
                            .method = parse_perplexity_method(command.method),
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
  add_common_options(sub, command->common);
  sub.remove_option(sub.get_option("--ctx"));  // replaced by a list of lengths
  sub.add_option("-c,--ctx", command->ctx, "tokens per window")
      ->delimiter(',')
      ->default_str("original length, at most 2048; growing: twice it")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 40));
  add_perplexity_options(sub, command->method, command->stride, command->max_tokens,
                         "growing: N / --ctx contexts", true);
  sub.get_option("--max-tokens")->default_str("all");
  sub.add_option("--step", command->step, "tokens per growing step or anchored window")
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
