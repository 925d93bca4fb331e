#include "tools/divergence.h"

#include <fmt/core.h>

#include <iostream>

#include "engine/eval/divergence.h"
#include "tools/help.h"
#include "tools/measuring.h"

namespace lariat {
namespace {

constexpr int64_t kDefaultWindow = 2048;  // at most, as for a perplexity

// The options of the second model. Weights stored in another way replace how the first one's are stored,
// whichever of the two options says it.
CommonOptions options_of_reference(const CommonOptions& first, const AgainstOptions& against) {
  CommonOptions options = first;
  if (against.reference != "same") options.model = against.reference;
  if (!against.quantize.empty()) {
    options.quantize = against.quantize;
    if (against.quantize != "none") options.dtype = "auto";
  }
  if (!against.dtype.empty()) {
    if (against.dtype != "auto" && !against.quantize.empty() && against.quantize != "none") {
      throw UsageError(
          "--against-quantize says how weights are stored, so --against-dtype cannot; leave one of them out");
    }
    options.dtype = against.dtype;
    if (against.dtype != "auto") options.quantize = "none";
  }
  if (!against.kv_dtype.empty()) options.kv_dtype = against.kv_dtype;
  if (against.rope_scaling) {
    options.rope.scaling = against.rope_scaling;
    options.rope.factor.reset();
    options.rope.config.reset();
  }
  if (against.rope_factor) options.rope.factor = against.rope_factor;
  const auto what = [](const CommonOptions& of) {
    return std::tie(of.quantize, of.dtype, of.kv_dtype, of.rope.scaling, of.rope.factor, of.rope.config);
  };
  std::error_code ec;
  if (what(options) == what(first) && std::filesystem::equivalent(options.model, first.model, ec)) {
    throw UsageError(
        "--against is the same model run in the same way; name another folder, or say what differs, as with "
        "--against-quantize none");
  }
  return options;
}

// Whether two tokenizers make the same ids of a text, piece by piece as it is read.
class SameIds {
 public:
  SameIds(const CommonOptions& first, const Tokenizer& tokenizer, const CommonOptions& reference)
      : first_(first.model), reference_(reference.model), tokenizer_(tokenizer) {
    std::error_code ec;
    if (std::filesystem::equivalent(first_, reference_, ec)) return;
    other_ = open_tokenizer(reference);
    if (text_bos(tokenizer) != text_bos(*other_)) refuse("another BOS");
  }
  void check(std::span<const int32_t> ids) const {
    if (!other_) return;
    const std::string text = tokenizer_.decode(ids, false);
    if (tokenizer_.encode(text, false) != other_->encode(text, false)) refuse("other ids for the text");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        fmt::format("{}: its tokenizer has {} than that of {}; a divergence is between models that "
                    "read the same ids",
                    reference_.string(), what, first_.string()));
  }
  const std::filesystem::path &first_, &reference_;
  const Tokenizer& tokenizer_;
  std::optional<Tokenizer> other_;
};

nlohmann::ordered_json to_json(const std::filesystem::path& folder, const Runtime& runtime) {
  const SessionOptions& session = runtime.session;
  return {{"folder", folder.string()},           {"weights", name_of(runtime.model.weights.dtype)},
          {"keys", name_of(session.k_dtype)},    {"values", name_of(session.v_dtype)},
          {"rope", name_of(session.rope->type)}, {"rope_factor", session.rope->factor}};
}

nlohmann::ordered_json to_json(const char* name, const Estimate& estimate) {
  return {{name, estimate.value}, {"stderr", estimate.error}};
}

// What is not a number is null.
nlohmann::ordered_json to_json(const DivergenceResult& result) {
  auto kl = to_json("mean", result.kl.over(result.tokens));
  kl["p99"] = result.kl_at(0.99);
  kl["max"] = result.kl_at(1);
  auto difference = to_json("mean", result.difference.over(result.tokens));
  const Estimate rms = result.rms_difference();
  difference.update({{"rms", rms.value}, {"rms_stderr", rms.error}, {"max", result.largest_difference}});
  nlohmann::ordered_json json = {{"ctx", result.ctx},
                                 {"stride", nullptr},
                                 {"method", name_of(result.method)},
                                 {"tokens", result.tokens},
                                 {"complete", result.complete},
                                 {"ppl", to_json("value", result.ppl())},
                                 {"against_ppl", to_json("value", result.reference_ppl())},
                                 {"ppl_ratio", to_json("value", result.ppl_ratio())},
                                 {"kl", kl},
                                 {"p_difference", difference},
                                 {"same_top", to_json("share", result.same_top())}};
  if (result.stride > 0) json["stride"] = result.stride;
  return json;
}

void print_table(const DivergenceResult& result) {
  std::vector<std::vector<std::string>> rows = {
      {fmt::format("{} of {}, {} tokens", name_of(result.method), result.ctx, result.tokens), "", ""}};
  const auto add = [&](const char* name, const Estimate& estimate, double scale = 1, const char* unit = "") {
    rows.push_back({name, fmt::format("{:.6f}{}", scale * estimate.value, unit),
                    fmt::format("± {:.6f}{}", scale * estimate.error, unit)});
  };
  const auto add_single = [&](const char* name, double value, double scale = 1, const char* unit = "") {
    rows.push_back({name, fmt::format("{:.6f}{}", scale * value, unit), ""});
  };
  add("perplexity", result.ppl());
  add("perplexity of --against", result.reference_ppl());
  add("their ratio", result.ppl_ratio());
  add("KL divergence, nats, mean", result.kl.over(result.tokens));
  add_single("  99th percentile", result.kl_at(0.99));
  add_single("  largest", result.kl_at(1));
  add("p(token), difference, mean", result.difference.over(result.tokens), 100, " %");
  add("  root mean square", result.rms_difference(), 100, " %");
  add_single("  largest", result.largest_difference, 100, " %");
  add("same top token", result.same_top(), 100, " %");
  std::cout << aligned_table(rows) << std::flush;
}

}  // namespace

void add_against_options(CLI::App& command, AgainstOptions& against) {
  begin_group(command, kAgainstOptions);
  const auto add = [&](const char* name, auto& value, const char* description) {
    return command.add_option(name, value, description)->default_str("as the first model's");
  };
  auto* reference = command.add_option(
      "--against", against.reference, "how far the model is from this one: a checkpoint folder, or \"same\"");
  reference->type_name("DIR|same");
  for (const char* other : {"--load-cache", "--save-cache", "--buckets"})
    reference->excludes(command.get_option(other));
  add("--against-quantize", against.quantize, "its --quantize")->check(CLI::IsMember({"none", "q8", "q4"}));
  add("--against-dtype", against.dtype, "its --dtype")->check(CLI::IsMember({"auto", "f32", "bf16", "f16"}));
  add("--against-kv-dtype", against.kv_dtype, "its --kv-dtype")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}));
  add("--against-rope-scaling", against.rope_scaling, "its --rope-scaling")->type_name(rope_type_choices());
  add("--against-rope-factor", against.rope_factor, "its --rope-factor")->type_name("F");
  for (const char* name : {"quantize", "dtype", "kv-dtype", "rope-scaling", "rope-factor"})
    command.get_option(std::string("--against-") + name)->needs(reference);
  begin_group(command, kMainOptions);
}

void run_divergence(const DivergenceCommand& command) {
  if (command.method != "sliding" && command.method != "chunks")
    throw UsageError("--against compares windows; use --method sliding or chunks");
  if (command.ctx.size() > 1) throw UsageError("--against takes one length of window (--ctx)");
  const CommonOptions other = options_of_reference(command.common, command.against);
  const Tokenizer tokenizer = open_tokenizer(command.common);
  const SameIds same(command.common, tokenizer, other);
  FileTokens file(command.file, tokenizer);
  TokenSource source(
      [&](std::vector<int32_t>& tokens) {
        const size_t before = tokens.size();
        const bool more = file.read(tokens);
        same.check(std::span(tokens).subspan(before));
        return more;
      },
      command.max_tokens);
  Runtime runtime = open_runtime(command.common), reference = open_runtime(other);
  Session session(runtime.model, *runtime.backend, runtime.session);
  Session reference_session(reference.model, *reference.backend, reference.session);
  PerplexityOptions options;
  options.ctx = command.ctx;
  if (options.ctx.empty()) options.ctx = {std::min(session.rope().original_ctx, kDefaultWindow)};
  options.stride = command.stride;
  options.method = parse_perplexity_method(command.method);
  options.bos = text_bos(tokenizer);
  options.interrupted = &interrupted();
  DivergenceResult result;
  {
    Progress bar("divergence", 1000, command.common.quiet);
    const Eta eta;
    result = measure_divergence(
        session, reference_session, source, command.file.string(), options, command.common.threads,
        [&](int64_t position, const DivergenceResult& so_far) {
          const double done = share_of_text(position, source, file);
          bar.update(static_cast<int64_t>(1000 * done),
                     fmt::format("KL {:.6f}  {}", so_far.kl.over(so_far.tokens).value, eta.left(done)));
        });
  }
  if (command.json) {
    nlohmann::ordered_json json = to_json(result);
    json["model"] = to_json(command.common.model, runtime);
    json["against"] = to_json(other.model, reference);
    print_json(json);
  } else {
    print_table(result);
  }
  if (!result.complete)
    throw Error(fmt::format("interrupted; the numbers are of the first {} tokens scored", result.tokens));
}

}  // namespace lariat
