#include "tools/options.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <regex>

#include "engine/eval/measure/token_source.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "kernels/search_quant.h"
#include "models/io/json_fields.h"
#include "models/io/text_file.h"
#include "models/positions/parse_position_method.h"
#include "models/text/unicode.h"
#include "tools/help.h"
#include "tools/ranks.h"

namespace lariat {
namespace {

constexpr int kMaxSteps = 64;

int parse_steps(const std::string& text) {
  if (text == "exact") return 0;
  int steps = -1;
  if (!CLI::detail::lexical_cast(text, steps) || steps < 1 || steps > kMaxSteps) {
    throw UsageError(
        fmt::format("--rope-steps: found \"{}\"; use exact or an integer from 1 to {}", text, kMaxSteps));
  }
  return steps;
}

// JSON, true, false or none in any case (Python writes False), or a text.
nlohmann::ordered_json parse_variable(const std::string& value) {
  std::string word = value;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "none") word = "null";
  const bool known = word == "true" || word == "false" || word == "null";
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(known ? word : value, nullptr, false);
  if (json.is_discarded() && (value.starts_with('[') || value.starts_with('{')))
    throw UsageError(fmt::format(
        "--template-var: \"{:.100}\" is not JSON; quote its texts with \", as in names=[\"a\"]", value));
  return json.is_discarded() ? nlohmann::ordered_json(value) : json;
}

constexpr const char* kDevices = "auto|cpu|cuda|cuda:N";

std::string check_device(const std::string& device) {
  static const std::regex known("auto|cpu|cuda(:[0-9]{1,4})?");
  return std::regex_match(device, known) ? "" : fmt::format("{} is unknown; use one of {}", device, kDevices);
}

}  // namespace

void warn_idle(const CommonOptions& options, std::vector<std::string> names, const std::string& why) {
  std::erase_if(names, [&](const std::string& name) { return options.command->count(name) == 0; });
  if (names.empty()) return;
  const char* change = names.size() == 1 ? "has" : "have";
  print_warnings({fmt::format("{} {} no effect {}", fmt::join(names, ", "), change, why)}, options.quiet);
}

nlohmann::ordered_json activations_json(const Model& model, const SessionOptions& options) {
  if (!is_quantized(model.weights.format.dtype)) return nullptr;
  return options.activations;
}

void warn_of_still_scale(const CommonOptions& options, const RopeScaling& rope) {
  if (rope.depends_on_length()) return;
  warn_idle(options, {"--rope-steps", "--rope-cache"},
            "without a dynamic scale; use --rope-scaling dynamic-yarn");
}

void add_model_option(CLI::App& command, CommonOptions& options, bool required) {
  auto* option =
      command.add_option("-m,--model", options.model, "Hugging Face checkpoint folder or GGUF file")
          ->type_name("DIR");
  if (required) option->required();
}

void add_common_options(CLI::App& command, CommonOptions& options, const CommonParts& parts) {
  options.command = &command;
  begin_group(command, kRopeOptions);
  add_rope_options(command, options.open, parts.one_scaling);
  auto* method = add_position_option(command, options.open);
  if (!parts.one_scaling) method->group("");
  begin_group(command, kMemoryOptions);
  command.add_option("--device", options.open.device, "device; auto: a GPU if available")
      ->type_name(kDevices)
      ->check(check_device);
  command.add_option("-t,--threads", options.open.threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(0, 1024));
  command
      .add_option("--dtype", options.dtype,
                  "weight and matrix multiplication dtype; auto: the checkpoint's dtype")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "f16"}));
  command
      .add_option("--quantize", options.quantize, "group-wise weight quantization at load, to 8 or 4 bits")
      ->check(CLI::IsMember({"none", "q8", "q4"}));
  command
      .add_option("--activations", options.open.activations,
                  "bits of activations in products with quantized weights")
      ->check(CLI::IsMember({8, 16}))
      ->default_str(std::to_string(options.open.activations));
  add_kv_dtype_option(command, "--kv-dtype", options.kv_dtype,
                      "KV cache dtype, q8 for values only; auto: f16 keys");
  if (parts.ctx) {
    command.add_option("-c,--ctx", options.open.max_ctx, "maximum sequence length; 0: no limit")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  }
  command
      .add_option("--prefill-chunk", options.open.prefill_chunk,
                  "prompt tokens per forward pass; 0: all at once")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command.add_option("--split", options.open.split, "division of the KV cache among processes of mpirun")
      ->check(CLI::IsMember({"heads", "sequence"}));
  begin_group(command, kOutputOptions);
  command.add_flag("--quiet", options.quiet, "print only errors to stderr");
  begin_group(command, kMainOptions);
}

CLI::Option* add_position_option(CLI::App& command, OpenOptions& options) {
  return command
      .add_option("--position-method", options.position_method,
                  "position method for long contexts, as in dca/chunk=6144/window=2048")
      ->type_name(known_position_methods("|"))
      ->default_str("the model's own");
}

CLI::Option* add_template_var_option(CLI::App& command, CommonOptions& options) {
  const auto set = [&options](const std::vector<std::string>& all) {
    for (const std::string& one : all) {
      const size_t at = one.find('=');
      const std::string name = one.substr(0, at);
      if (at == std::string::npos || at == 0)
        throw UsageError("--template-var: \"" + one +
                         "\" is no NAME=VALUE; write it as in enable_thinking=false");
      if (ChatTemplate::sets(name))
        throw UsageError("--template-var: " + name + " is set by lariat; use another name");
      options.open.template_variables[name] = parse_variable(valid_utf8(one.substr(at + 1)));
    }
  };
  return command
      .add_option_function<std::vector<std::string>>(
          "--template-var", set, "chat template variable, as in enable_thinking=false (repeatable)")
      ->type_name("NAME=VALUE")
      ->take_all()
      ->expected(1);
}

void add_rope_options(CLI::App& command, OpenOptions& options, bool one_scaling) {
  const auto add = [&](const char* name, auto& value, const std::string& type,
                       const std::string& description) {
    return command.add_option(name, value, description)->type_name(type);
  };
  auto* scaling = add("--rope-scaling", options.rope.scaling, known_scalings("|"), "RoPE scaling method")
                      ->default_str("the model's own");
  add("--rope-factor", options.rope.factor, "F",
      "scaling factor of the original context; dynamic-yarn: maximum");
  add("--rope-original-ctx", options.rope.original_ctx, "N", "context length the model was trained with");
  add("--rope-theta", options.rope.theta, "F", "base of the frequencies");
  auto* config = add("--rope-config", options.rope.config, "FILE",
                     "JSON file with a rope_scaling or rope_parameters object");
  command
      .add_option_function<std::string>(
          "--rope-steps", [&options](const std::string& text) { options.rope_steps = parse_steps(text); },
          "steps per octave in which a dynamic scale moves")
      ->type_name("N|exact")
      ->default_str(options.rope_steps == 0 ? "exact" : std::to_string(options.rope_steps));
  if (!one_scaling) {
    for (CLI::Option* option : {scaling, config}) option->group("");
    return;
  }
  command
      .add_option_function<std::string>(
          "--rope-cache", [&options](const std::string& text) { options.stale_cache = text == "stale"; },
          "re-rotate cached keys on scale changes (consistent) or not (stale)")
      ->check(CLI::IsMember({"consistent", "stale"}))
      ->default_str("consistent");
}

CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning) {
  return command.add_option(name, value, meaning)
      ->type_name("auto|f32|f16|bf16|k=..,v=..")
      ->check([](const std::string& text) {
        try {
          parse_kv_dtypes(text);
          return std::string();
        } catch (const UsageError& e) {
          return std::string(e.what());
        }
      });
}

void add_token_options(CLI::App& command, std::string& tokens, std::filesystem::path& file) {
  auto* source = command.add_option_group("tokens", "the token ids");
  source->add_option("--tokens", tokens, "token ids separated by commas")->type_name("N,N,...");
  source->add_option("--tokens-file", file, "file of token ids; -: standard input");
  source->require_option(1);
}

std::vector<int32_t> given_tokens(const std::string& tokens, const std::filesystem::path& file) {
  if (file.empty()) return parse_token_list(tokens, "--tokens");
  return parse_token_list(read_text(file, kMaxTokenFileBytes), input_name(file));
}

Engine open_engine(const CommonOptions& options, Reads reads) {
  OpenOptions open = options.open;
  open.reads = reads;
  if (options.dtype != "auto") open.dtype = parse_dtype(options.dtype);
  if (options.quantize != "none") {
    open.quantize =
        options.quantize == "q8" ? WeightFormat(DType::kQ8) : searched_format(DType::kQ4, kSearchBlock);
  }
  open.kv_dtype = parse_kv_dtypes(options.kv_dtype);
  if (!options.quiet) open.warn = [](const std::string& line) { print_warnings({line}, false); };
  if (open.device == "auto" && !options.quiet && isatty(STDERR_FILENO) == 1) {
    if (const std::string why_not = cuda_unavailable_reason(); !why_not.empty())
      say("running on the CPU (" + why_not + ")");
  }
  Progress progress("loading", 100, options.quiet);
  open.progress = [&](size_t done, size_t total) {
    progress.update(static_cast<int64_t>(100 * done / total), std::to_string(total >> 20) + " MiB");
  };
  open.ranks = ranks();
  Engine engine = Engine::open(options.model, open);
  if (open.ranks != nullptr && open.ranks->rank() > 0) {
    follow_first_rank(engine);
    throw Followed();
  }
  engine.options.progress = nullptr;
  progress.clear();
  print_warnings(engine.warnings, options.quiet);
  if (!is_quantized(engine.model.weights.format.dtype))
    warn_idle(options, {"--activations"},
              "with floating-point weights; use --quantize q8 or a quantized model");
  if (open.ranks == nullptr) warn_idle(options, {"--split"}, "in one process; start several with mpirun");
  if (!options.other_scalings && !engine.session_options.positions.stretch)
    warn_of_still_scale(options, *engine.session_options.rope);
  return engine;
}

}  // namespace lariat
