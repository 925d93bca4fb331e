#include <fmt/core.h>

#include <iostream>
#include <tuple>

#include "engine/eval/divergence.h"
#include "kernels/counted.h"
#include "tools/help.h"
#include "tools/measuring.h"
#include "tools/perplexity.h"

namespace lariat {
namespace {

// The options of the second model. Weights stored in another way replace how the first one's are stored,
// whichever of the two options says it.
CommonOptions options_of_reference(const CommonOptions& first, const AgainstOptions& against) {
  CommonOptions options = first;
  options.other_scalings = true;  // what changes nothing is said of the first
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
          "--against-quantize says how weights are stored, so --against-dtype cannot; leave one out");
    }
  }
  if (!against.kv_dtype.empty()) options.kv_dtype = against.kv_dtype;
  if (against.rope_scaling) {
    options.open.rope.scaling = against.rope_scaling;
    options.open.rope.factor.reset();
    options.open.rope.config.reset();
  }
  if (against.rope_factor) options.open.rope.factor = against.rope_factor;
  const auto what = [](const CommonOptions& of) {
    return std::tie(of.quantize, of.dtype, of.kv_dtype, of.open.rope.scaling, of.open.rope.factor,
                    of.open.rope.config);
  };
  std::error_code ec;
  if (what(options) == what(first) && std::filesystem::equivalent(options.model, first.model, ec)) {
    throw UsageError(
        "--against is the same model run in the same way; name another folder, or say what differs, as with "
        "--against-quantize none");
  }
  return options;
}

// The properties of a model and of how it is run that may differ.
nlohmann::ordered_json to_json(const std::filesystem::path& folder, Session& session) {
  return {{"folder", folder.string()},
          {"weights", name_of(session.model().weights.dtype)},
          {"keys", name_of(session.options().k_dtype)},
          {"values", name_of(session.options().v_dtype)},
          {"rope", name_of(session.rope().type)},
          {"rope_factor", session.rope().factor}};
}

// Throws Error where the two models would not read the same ids.
void check_same_ids(const TokenSource& source, const Tokenizer& tokenizer, const Tokenizer& other,
                    const std::filesystem::path& reference) {
  const std::string text = tokenizer.decode(source.range(0, source.size()), false);
  if (tokenizer.encode(text, false) != other.encode(text, false) || text_bos(tokenizer) != text_bos(other)) {
    throw Error(reference.string() +
                ": its tokenizer makes other ids of the text than the first model's; --against takes a model "
                "with the same tokenizer");
  }
}

void print(const DivergenceResult& result, const PerplexityCommand& command, nlohmann::ordered_json json) {
  std::vector<std::vector<std::string>> rows;
  for (const DivergenceFigure& figure : figures(result)) {
    json[figure.key] = figure.value;  // NaN becomes null
    rows.push_back({figure.label, fixed(figure.scale * figure.value, 6), ""});
    if (!figure.error) continue;
    json[std::string(figure.key) + "_stderr"] = *figure.error;
    rows.back()[2] = margin(figure.scale * *figure.error, 6);
  }
  if (command.json) return print_json(json);
  std::cout << fmt::format("{} windows of {}, {}\n", command.method, result.ctx,
                           counted(result.tokens.size(), "token"))
            << aligned_table(rows) << std::flush;
}

}  // namespace

void add_against_options(CLI::App& command, AgainstOptions& against) {
  begin_group(command, kAgainstOptions);
  auto* reference = command
                        .add_option("--against", against.reference,
                                    "say how far the model is from this one, or from itself")
                        ->type_name("DIR|same");
  for (const char* name : {"--load-cache", "--save-cache", "--buckets", "--step"})
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
  begin_group(command, kMainOptions);
}

void run_divergence(const PerplexityCommand& command) {
  if (command.method != "sliding" && command.method != "chunks")
    throw UsageError("--against compares windows; use --method sliding or chunks");
  if (command.ctx.size() > 1) throw UsageError("--against takes one length of window (--ctx)");
  const CommonOptions other = options_of_reference(command.common, command.against);
  const bool one_folder = other.model == command.common.model;
  check_text(command.file);
  const Engine runtime = open_engine(command.common);
  const Engine other_runtime = open_engine(other, one_folder ? Reads::kTokens : Reads::kText);
  const Tokenizer& tokenizer = *runtime.tokenizer;
  const Tokenizer& other_tokenizer = one_folder ? tokenizer : *other_runtime.tokenizer;
  const TokenSource source = read_tokens(command.file, tokenizer, command.max_tokens);
  check_same_ids(source, tokenizer, other_tokenizer, other.model);
  Session session(runtime.model, *runtime.backend, runtime.session);
  Session reference(other_runtime.model, *other_runtime.backend, other_runtime.session);
  const PerplexityOptions options = options_of(command, tokenizer, session.rope().original_ctx);
  DivergenceResult result;
  {
    Meter meter("divergence", command.common.quiet);
    const auto show = [&](int64_t position) {
      meter.show(static_cast<double>(position) / static_cast<double>(source.size()), "");
    };
    result = measure_divergence(session, reference, source, options, command.common.open.threads, show);
  }
  print(result, command,
        {{"ctx", result.ctx},
         {"method", command.method},
         {"tokens", result.tokens.size()},
         {"complete", result.complete},
         {"model", to_json(command.common.model, session)},
         {"against", to_json(other.model, reference)}});
  if (!result.complete)
    throw Error(fmt::format("interrupted; the numbers are of the first {} scored",
                            counted(result.tokens.size(), "token")));
}

}  // namespace lariat
