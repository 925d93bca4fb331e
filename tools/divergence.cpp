#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <tuple>
#include <utility>

#include "engine/eval/measure/divergence.h"
#include "engine/eval/measure/windows.h"
#include "engine/eval/render/tables.h"
#include "kernels/counted.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/perplexity.h"

namespace lariat {
namespace {

bool same_but_for_rope(const CommonOptions& a, const CommonOptions& b) {
  return std::tie(a.quantize, a.dtype, a.kv_dtype) == std::tie(b.quantize, b.dtype, b.kv_dtype);
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
  if (against.rope_scaling) {
    options.open.rope.scaling = against.rope_scaling;
    options.open.rope.factor.reset();
    options.open.rope.config.reset();
  }
  if (against.rope_factor) options.open.rope.factor = against.rope_factor;
  if (!against.rope_cache.empty()) options.open.stale_cache = against.rope_cache == "stale";
  const auto what = [](const CommonOptions& of) {
    return std::tie(of.quantize, of.dtype, of.kv_dtype, of.open.rope.scaling, of.open.rope.factor,
                    of.open.rope.config, of.open.stale_cache);
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

// Adds each error as "key_stderr".
void add_figures(nlohmann::ordered_json& json, const std::vector<DivergenceFigure>& of) {
  for (const DivergenceFigure& figure : of) {
    json[figure.key] = figure.value;  // NaN becomes null
    if (figure.error) json[std::string(figure.key) + "_stderr"] = *figure.error;
  }
}

nlohmann::ordered_json to_json(const DivergenceResult& result, const PerplexityCommand& command,
                               const PerplexityOptions& options) {
  nlohmann::ordered_json json = {{"ctx", result.ctx},
                                 {"window_method", command.method},
                                 {"tokens", result.tokens.size()},
                                 {"complete", result.complete}};
  add_figures(json, figures(result));
  if (command.method != "growing") return json;
  for (int64_t from = 0; const int64_t to : bucket_ends(options, 0, result.ctx)) {
    json["positions"].push_back({{"from", from}, {"to", to}});
    add_figures(json["positions"].back(), figures(result, std::exchange(from, to), to));
  }
  return json;
}

void print(const DivergenceResult& result, const std::string& method, const PerplexityOptions& options) {
  std::vector<std::vector<std::string>> rows;
  for (const DivergenceFigure& figure : figures(result)) {
    rows.push_back({figure.label, fixed(figure.scale * figure.value, 6),
                    margin(figure.scale * figure.error.value_or(NAN), 6)});
  }
  std::cout << fmt::format("{} of {}, {}\n", method == "growing" ? "growing context" : method + " windows",
                           result.ctx, counted(result.tokens.size(), "token"))
            << aligned_table(rows);
  if (method != "growing") return;
  rows = {{"positions", "perplexity", "of --against", "their ratio", "", "KL"}};
  for (int64_t from = 0; const int64_t to : bucket_ends(options, 0, result.ctx)) {
    const std::string positions = fmt::format("{} - {}", from, to - 1);
    const auto all = figures(result, std::exchange(from, to), to);
    const auto of = [&](std::string_view key) {
      return *std::ranges::find(all, key, &DivergenceFigure::key);
    };
    if (std::isnan(of("ppl").value)) continue;  // not reached
    const DivergenceFigure ratio = of("ppl_ratio");
    rows.push_back({positions, fixed(of("ppl").value, 4), fixed(of("against_ppl").value, 4),
                    fixed(ratio.value, 4), margin(ratio.error.value_or(NAN), 4), fixed(of("kl").value, 6)});
  }
  std::cout << "\n" << aligned_table(rows);
}

}  // namespace

void add_against_options(CLI::App& command, AgainstOptions& against) {
  begin_group(command, kAgainstOptions);
  auto* reference = command
                        .add_option("--against", against.reference,
                                    "reference model to compare with; same: the model itself")
                        ->type_name("DIR|same");
  for (const char* name : {"--load-cache", "--save-cache", "--losses", "--csv", "--results"})
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
  const std::vector<int64_t> lengths = options.ctx;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  DivergenceResult result;
  for (const int64_t ctx : lengths) {
    {
      Meter meter("divergence", command.common.quiet);
      const auto show = [&](int64_t position) {
        meter.show(static_cast<double>(position) / static_cast<double>(source.size()),
                   fmt::format("{}  ", ctx));
      };
      options.ctx = {ctx};
      result = measure_divergence(session, reference, source, options, command.common.open.threads, show);
    }
    all.push_back(to_json(result, command, options));
    if (!command.files.json) print(result, command.method, options);
    std::cout << std::flush;
    if (!result.complete) break;
  }
  options.ctx = lengths;
  // Runs that differ only in scaling are then identical.
  const bool identical = same_frequencies(session, reference, options);
  if (command.files.json) {
    nlohmann::ordered_json json = lengths.size() == 1 ? all[0] : nlohmann::ordered_json::object();
    json.update({{"model", to_json(command.common.model, session)},
                 {"against", to_json(other.model, reference)},
                 {"identical_frequencies", identical},
                 {"results", all}});
    print_json(json);
  } else if (identical && one_folder && same_but_for_rope(command.common, other)) {
    std::cout << "identical frequencies at these lengths\n";
  }
  std::cout << std::flush;
  if (!result.complete)
    throw Error(fmt::format("interrupted; the results cover the first {} scored",
                            counted(result.tokens.size(), "token")));
}

}  // namespace lariat
