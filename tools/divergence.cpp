#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <tuple>
#include <utility>

#include "engine/contexts/fingerprint.h"
#include "engine/eval/measure/divergence.h"
#include "engine/eval/measure/measure.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/windows.h"
#include "engine/eval/render/tables.h"
#include "kernels/counted.h"
#include "models/positions/parse_position_method.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/perplexity.h"

namespace lariat {
namespace {

bool same_but_for_rope(const CommonOptions& a, const CommonOptions& b) {
  const auto what = [](const CommonOptions& of) {
    return std::tie(of.quantize, of.dtype, of.kv_dtype, of.open.activations, of.open.position_method);
  };
  return what(a) == what(b);
}

// --against-quantize or --against-dtype sets the whole weight format.
CommonOptions options_of_reference(const CommonOptions& first, const AgainstOptions& against) {
  CommonOptions options = first;
  options.other_scalings = true;  // idle options are reported once, for the first model
  if (against.reference != "same") options.model = against.reference;
  if (!against.quantize.empty()) {
    options.quantize = against.quantize;
    if (against.quantize != "none") options.dtype = "auto";
  }
  if (!against.dtype.empty()) {
    options.dtype = against.dtype;
    if (against.quantize.empty()) {
      options.quantize = "none";
    } else if (options.quantize != "none" && options.dtype != "auto") {
      throw UsageError(
          "--against-quantize: excludes --against-dtype, as both set the weight format; omit one");
    }
  }
  if (!against.kv_dtype.empty()) options.kv_dtype = against.kv_dtype;
  if (against.rope_scaling || against.rope_config) {
    options.open.rope.scaling = against.rope_scaling;
    options.open.rope.config = against.rope_config;
    options.open.rope.factor.reset();
  }
  if (against.rope_factor) options.open.rope.factor = against.rope_factor;
  if (against.activations) options.open.activations = *against.activations;
  if (against.position_method) options.open.position_method = *against.position_method;
  if (!against.rope_cache.empty()) options.open.stale_cache = against.rope_cache == "stale";
  const auto what = [](const CommonOptions& of) {
    return std::tie(of.quantize, of.dtype, of.kv_dtype, of.open.activations, of.open.position_method,
                    of.open.rope.scaling, of.open.rope.factor, of.open.rope.config, of.open.stale_cache);
  };
  std::error_code ec;
  if (what(options) == what(first) && std::filesystem::equivalent(options.model, first.model, ec)) {
    throw UsageError(
        "--against: the same model with the same options; name another folder or change an option, such as "
        "--against-quantize none");
  }
  return options;
}

nlohmann::ordered_json to_json(const std::filesystem::path& folder, Session& session) {
  return {{"folder", folder.string()},
          {"weights", name_of(session.model().weights.format.dtype)},
          {"activations", activations_json(session.model(), session.options())},
          {"device", session.backend().description()},
          {"keys", name_of(session.options().k_dtype)},
          {"values", name_of(session.options().v_dtype)},
          {"rope", name_of(session.rope().type)},
          {"rope_factor", session.rope().factor},
          {"rope_cache", session.options().stale_cache ? "stale" : "consistent"}};
}

void check_same_ids(const TokenSource& source, const Tokenizer& tokenizer, const Tokenizer& other,
                    const std::filesystem::path& reference) {
  const std::string text = tokenizer.decode(source.range(0, source.size()), false);
  if (tokenizer.encode(text, false) != other.encode(text, false) || text_bos(tokenizer) != text_bos(other)) {
    throw Error(
        reference.string() +
        ": its tokenizer produces other ids for the text than the first model's; use --against with a "
        "model of the same tokenizer");
  }
}

// In the table; scale 100: %.
struct Shown {
  const char* label;
  double scale = 1;
};
constexpr Shown kShown[] = {{"perplexity"},
                            {"perplexity of --against"},
                            {"perplexity ratio"},
                            {"KL divergence in nats, mean"},
                            {"  99th percentile"},
                            {"  largest"},
                            {"difference of p(token) in %, mean", 100},
                            {"  root mean square", 100},
                            {"  largest", 100},
                            {"same top token, %", 100}};
static_assert(std::size(kShown) == std::size(kFigures));

nlohmann::ordered_json to_json(const Record& record, const std::string& method, bool complete) {
  nlohmann::ordered_json all = to_json(record), json = {{"ctx", record.length},
                                                        {"window_method", method},
                                                        {"tokens", all["tokens"]},
                                                        {"complete", complete}};
  for (const char* other : {"kind", "scaling", "length", "from", "to", "rope_factor"}) all.erase(other);
  json.update(all);
  return json;
}

void print(const Record& record, const std::string& method) {
  const auto& all = std::get<Divergence>(record.value);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::size(kShown); ++i) {
    const auto& [label, scale] = kShown[i];
    const auto& [value, error] = all.all[i];
    rows.push_back({label, fixed(scale * value, 6), margin(scale * error.value_or(NAN), 6)});
  }
  std::cout << fmt::format("{} of {}, {}\n", method == "growing" ? "growing context" : method + " windows",
                           record.length, counted(all.tokens, "token"))
            << aligned_table(rows);
  if (all.positions.empty()) return;
  rows = {{"positions", "perplexity", "of --against", "their ratio", "", "KL"}};
  for (const DivergenceFigures& part : all.positions) {
    if (part.tokens == 0) continue;  // not reached
    const Figure& ratio = part.at("ppl_ratio");
    rows.push_back({fmt::format("{} - {}", part.from, part.to - 1), fixed(part.at("ppl").value, 4),
                    fixed(part.at("against_ppl").value, 4), fixed(ratio.value, 4),
                    margin(ratio.error.value_or(NAN), 4), fixed(part.at("kl").value, 6)});
  }
  std::cout << "\n" << aligned_table(rows);
}

Plan plan_of(const PerplexityCommand& command, const Engine& engine, const Engine& reference,
             const PerplexityOptions& options, std::optional<std::string> fingerprint) {
  Plan plan = plan_of(command, engine, options, std::move(fingerprint));
  const Plan other = plan_of(reference, reference.session_options, options.ctx);
  plan.against = Plan::Against{other.model, other.columns.front(), other.options};
  return plan;
}

}  // namespace

void add_against_options(CLI::App& command, AgainstOptions& against) {
  begin_group(command, kAgainstOptions);
  auto* reference = command
                        .add_option("--against", against.reference,
                                    "reference model to compare with; same: the model itself")
                        ->type_name("DIR|same");
  for (const char* name : {"--load-cache", "--save-cache", "--losses"})
    reference->excludes(command.get_option(name));
  const auto add = [&](const char* name, auto& value, const char* description) {
    return command.add_option(name, value, description)
        ->default_str("as the first model's")
        ->needs(reference);
  };
  add("--against-quantize", against.quantize, "its --quantize")->check(CLI::IsMember({"none", "q8", "q4"}));
  add("--against-dtype", against.dtype, "its --dtype")->check(CLI::IsMember({"auto", "f32", "bf16", "f16"}));
  add_kv_dtype_option(command, "--against-kv-dtype", against.kv_dtype, "its --kv-dtype")
      ->default_str("as the first model's")
      ->needs(reference);
  add("--against-rope-scaling", against.rope_scaling, "its --rope-scaling")->type_name(known_scalings("|"));
  add("--against-rope-factor", against.rope_factor, "its --rope-factor")->type_name("F");
  add("--against-rope-config", against.rope_config, "its --rope-config")->type_name("FILE");
  add("--against-position-method", against.position_method, "its --position-method")
      ->type_name(known_position_methods("|"));
  add("--against-activations", against.activations, "its --activations")->check(CLI::IsMember({8, 16}));
  add("--against-rope-cache", against.rope_cache, "its --rope-cache")
      ->check(CLI::IsMember({"consistent", "stale"}));
  begin_group(command, kMainOptions);
}

void run_divergence(const PerplexityCommand& command) {
  const CommonOptions other = options_of_reference(command.common, command.against);
  const bool one_folder = other.model == command.common.model;
  check_text(command.file);
  const Engine runtime = open_engine(command.common);
  const Engine other_runtime = open_engine(other, one_folder ? Reads::kTokens : Reads::kText);
  const Tokenizer& tokenizer = *runtime.tokenizer;
  const Tokenizer& other_tokenizer = one_folder ? tokenizer : *other_runtime.tokenizer;
  const TokenSource source = read_tokens(command.file, tokenizer, command.max_tokens.value_or(0));
  check_same_ids(source, tokenizer, other_tokenizer, other.model);
  Session session = runtime.session();
  Session reference = other_runtime.session();
  PerplexityOptions options = options_of(command, runtime, source);
  const std::array<Session*, 2> both = {&session, &reference};
  check_windows(both, source, options);
  auto log = open_run_log(
      command.files,
      [&] { return plan_of(command, runtime, other_runtime, options, file_fingerprint(command.file)); },
      command.common.quiet);
  Measurements records{plan_of(command, runtime, other_runtime, options, std::nullopt)};
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  const Measurement what{.kind = Kind::kDivergence,
                         .column = column_of(runtime.session_options),
                         .lengths = options.ctx,
                         .text = &source,
                         .losses = options,
                         .reference = &reference,
                         .threads = command.common.open.threads,
                         .log = log ? &*log : nullptr};
  std::optional<Meter> meter;
  const bool complete = measure(
      session, what,
      [&](const Measured& measured) {
        meter.reset();
        records.records.push_back(measured.record);
        all.push_back(to_json(measured.record, command.method, measured.complete));
        if (!command.files.json) print(measured.record, command.method);
        std::cout << std::flush;
      },
      [&](double share, const std::string& note) {
        if (!meter) meter.emplace("divergence", command.common.quiet);
        meter->show(share, note);
      });
  meter.reset();
  // Runs that differ only in scaling are then identical.
  const bool identical = same_frequencies(session, reference, options);
  nlohmann::ordered_json json = options.ctx.size() == 1 ? all[0] : nlohmann::ordered_json::object();
  json.update({{"model", to_json(command.common.model, session)},
               {"against", to_json(other.model, reference)},
               {"identical_frequencies", identical},
               {"results", all}});
  const bool said = identical && one_folder && same_but_for_rope(command.common, other);
  publish(command.files, records, tabulate(records), json,
          said ? "identical frequencies at these lengths\n" : "");
  if (!complete) {
    throw Error(fmt::format("interrupted; the results cover the first {} scored{}",
                            counted(std::get<Divergence>(records.records.back().value).tokens, "token"),
                            log ? ", and --resume continues" : ""));
  }
}

}  // namespace lariat
