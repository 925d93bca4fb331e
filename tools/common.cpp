#include "tools/common.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <regex>
#include <utility>

#include "engine/memory_check.h"
#include "kernels/counted.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "models/config.h"
#include "models/families/gate.h"
#include "models/io/mapped_file.h"
#include "tools/help.h"
#include "tools/kv_dtype.h"

namespace lariat {
namespace {

std::atomic<bool> g_interrupted{false}, g_second_ends{true};
std::atomic<int> g_signal{0};  // which it was; SIGINT only if it was nothing else
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler writes them");

void on_signal(int signal) {
  if (signal != SIGINT || g_signal == 0) g_signal = signal;
  g_interrupted = true;
  if (g_second_ends) std::signal(signal, SIG_DFL);
}

void wait_for_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // What was ignored before stays so: nohup, and jobs that a script puts into the background.
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

constexpr int kMaxSteps = 64;

int parse_steps(const std::string& option, const std::string& text) {
  if (text == "exact") return 0;
  int steps = -1;
  if (!CLI::detail::lexical_cast(text, steps) || steps < 1 || steps > kMaxSteps) {
    throw UsageError(
        fmt::format("{} is \"{}\"; expected exact or an integer from 1 to {}", option, text, kMaxSteps));
  }
  return steps;
}

bool parse_stale(const std::string& text) {
  if (text != "consistent" && text != "stale") {
    throw UsageError(fmt::format("--rope-cache is \"{}\"; expected consistent or stale", text));
  }
  return text == "stale";
}

constexpr const char* kDevices = "auto|cpu|cuda|cuda:N";

std::string check_device(const std::string& device) {
  static const std::regex known("auto|cpu|cuda(:[0-9]{1,4})?");
  return std::regex_match(device, known) ? "" : fmt::format("{} is none of {}", device, kDevices);
}

}  // namespace

const std::atomic<bool>& interrupted() { return g_interrupted; }

int rearm_signals(bool second_ends) {
  g_second_ends = second_ends;
  g_interrupted = false;  // first: a signal that comes now is returned
  const int signal = g_signal.exchange(0);
  wait_for_signals();
  return signal;
}

void install_signal_handlers() {
  wait_for_signals();
  std::signal(SIGPIPE, SIG_IGN);  // a measurement goes on when nobody reads what it prints
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more fails like a full disk
  install_mapping_fault_handler();
}

bool stdout_has_no_reader() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

void add_model_option(CLI::App& command, CommonOptions& options, bool required) {
  auto* option =
      command.add_option("-m,--model", options.model, "Hugging Face checkpoint folder")->type_name("DIR");
  if (required) option->required();
}

void add_common_options(CLI::App& command, CommonOptions& options) {
  begin_group(command, kRopeOptions);
  add_rope_options(command, options.rope);
  add_rope_cache_options(command, options.rope_cache);
  begin_group(command, kMemoryOptions);
  command.add_option("--device", options.device, "where to run; auto: on a GPU if there is one")
      ->type_name(kDevices)
      ->check(check_device);
  command.add_option("-t,--threads", options.threads, "CPU threads; 0: every core")
      ->check(CLI::Range(0, 1024));
  command
      .add_option("--dtype", options.dtype,
                  "what weights are stored as and multiplied in; auto: the checkpoint's own")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "f16"}));
  command
      .add_option("--quantize", options.quantize,
                  "turn weights into groups of 8 or 4 bit integers while loading")
      ->check(CLI::IsMember({"none", "q8", "q4"}));
  add_kv_dtype_option(
      command, "--kv-dtype", options.kv_dtype,
      "KV cache, or k=..,v=.. with q8 for values; auto: f16 keys, values in the model's dtype");
  command.add_option("-c,--ctx", options.ctx, "longest sequence; 0: as long as memory lasts")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command
      .add_option("--prefill-chunk", options.prefill_chunk, "prompt tokens per forward pass; 0: all at once")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  begin_group(command, kOutputOptions);
  command.add_flag("--quiet", options.quiet, "nothing on stderr but errors");
  begin_group(command, kMainOptions);
}

void add_rope_options(CLI::App& command, RopeOptions& options) {
  const auto add = [&](const char* name, auto& value, const std::string& type,
                       const std::string& description) {
    return command.add_option(name, value, description)->type_name(type);
  };
  add("--rope-scaling", options.scaling, known_scalings("|"),
      "how positions beyond the trained context are reached")
      ->default_str("the model's own");
  add("--rope-factor", options.factor, "F",
      "how many times the original context; dynamic-yarn: the largest scale");
  add("--rope-original-ctx", options.original_ctx, "N", "context length the model was trained with");
  add("--rope-theta", options.theta, "F", "base of the frequencies");
  add("--rope-config", options.config, "FILE", "JSON file with a rope_scaling or rope_parameters object");
}

void add_rope_cache_options(CLI::App& command, RopeCacheOptions& options) {
  for (const std::string name : {"--rope-steps", "--rope-rungs"}) {
    command
        .add_option_function<std::string>(
            name, [&options, name](const std::string& text) { options.steps = parse_steps(name, text); },
            "steps per octave in which a dynamic scale moves")
        ->type_name("N|exact")
        ->default_str(options.steps == 0 ? "exact" : std::to_string(options.steps));
  }
  command
      .add_option_function<std::string>(
          "--rope-cache", [&options](const std::string& text) { options.stale = parse_stale(text); },
          "consistent: re-rotate cached keys when the scale moves; stale: leave them")
      ->type_name("consistent|stale")
      ->default_str(options.stale ? "stale" : "consistent");
  command.get_option("--rope-rungs")->group("");  // its older name, hidden
}

std::optional<DType> storage_dtype(const CommonOptions& options) {
  if (options.quantize != "none") {
    if (options.dtype != "auto") {
      throw UsageError("--quantize says how weights are stored, so --dtype cannot; leave one of them out");
    }
    return options.quantize == "q8" ? DType::kQ8 : DType::kQ4;
  }
  if (options.dtype == "auto") return std::nullopt;
  return parse_dtype(options.dtype);
}

std::unique_ptr<Backend> open_backend(const CommonOptions& options) {
  if (options.device != "cpu") {
    const int index = options.device.starts_with("cuda:") ? std::stoi(options.device.substr(5)) : 0;
    const std::string why_not = cuda_unavailable_reason(index);
    if (why_not.empty()) {
      return make_cuda_backend(
          index, [quiet = options.quiet](const std::string& line) { print_warnings({line}, quiet); });
    }
    if (options.device != "auto") {
      throw Error(fmt::format("--device {}: {}; use --device cpu", options.device, why_not));
    }
    if (!options.quiet && isatty(STDERR_FILENO) == 1) say("running on the CPU (" + why_not + ")");
  }
  return std::make_unique<CpuBackend>(options.threads);
}

SessionOptions session_options(const CommonOptions& options, const Model& model, const RopeScaling& rope) {
  SessionOptions session{.max_ctx = options.ctx,
                         .prefill_chunk = options.prefill_chunk,
                         .rope = rope,
                         .rope_steps = options.rope_cache.steps,
                         .stale_cache = options.rope_cache.stale,
                         .on_not_finite = {},
                         .on_saturated = {}};
  const bool steps_every_token = session.rope_steps == 0 && rope.depends_on_length();
  // A step smaller than half an ulp would be rounded away: re-rotating at every token asks for f32. Values
  // are floats by default, even when projections are quantised.
  const KvDTypes kv = parse_kv_dtypes(options.kv_dtype);
  session.k_dtype = kv.keys.value_or(steps_every_token ? DType::kF32 : DType::kF16);
  session.v_dtype = kv.values.value_or(model.weights.embed.dtype);
  if (steps_every_token && session.k_dtype != DType::kF32 && !session.stale_cache) {
    print_warnings(
        {fmt::format("--rope-steps exact with {} keys rounds small rotations away; use --kv-dtype f32",
                     name_of(session.k_dtype))},
        options.quiet);
  }
  return session;
}

std::function<void()> warn_not_finite(const CommonOptions& options, const Model& model) {
  if (options.quiet || model.checkpoint == nullptr) return {};
  return [checkpoint = model.checkpoint.get(), file = model.spec.file.string()] {
    static bool warned = false;
    if (std::exchange(warned, true)) return;
    std::string what = file + ": the logits are not finite";
    if (const auto found = find_not_finite(*checkpoint)) {
      what =
          fmt::format("{}: tensor '{}' holds {} of {}", found->file.string(), found->tensor.substr(0, 200),
                      counted(found->values, "NaN or infinite value", "NaN or infinite values"), found->of);
    }
    print_warnings({what + "; what follows is worth nothing"}, /*quiet=*/false);
  };
}

std::function<void(const Saturation&)> warn_saturated(const CommonOptions& options) {
  if (options.quiet) return {};
  return [](const Saturation& found) {
    static bool warned = false;
    if (std::exchange(warned, true)) return;
    const bool keys = found.keys > 0, values = found.values > 0;
    print_warnings(
        {fmt::format("{} numbers of the cached {} are beyond f16 and were cut to 65504, so that the "
                     "results are not the model's; use --kv-dtype {}bf16",
                     found.keys + found.values,
                     keys && values ? "keys and values"
                     : keys         ? "keys"
                                    : "values",
                     keys && values ? ""
                     : keys         ? "k="
                                    : "v=")},
        false);
  };
}

void warn_slow_attention(const CommonOptions& options, const Runtime& runtime) {
  const auto fast_attention = runtime.backend->traits().fast_attention;
  const DType k = runtime.session.k_dtype, v = runtime.session.v_dtype;
  const int64_t head_dim = runtime.model.spec.layers.front().attention.head_dim;
  if (fast_attention(k, v, head_dim)) return;
  if (!fast_attention(DType::kF16, DType::kF16, head_dim)) return;
  print_warnings(
      {fmt::format("attention over {} keys and {} values does not run on the tensor cores, which takes "
                   "several times longer; use --kv-dtype f16",
                   name_of(k), name_of(v))},
      options.quiet);
}

Tokenizer open_tokenizer(const CommonOptions& options) {
  refuse_other_formats(options.model);
  Tokenizer tokenizer = Tokenizer::load(options.model);
  print_warnings(tokenizer.warnings(), options.quiet);
  return tokenizer;
}

Runtime open_runtime(const CommonOptions& options) {
  const auto start = Stopwatch::now();
  Runtime runtime;
  refuse_other_formats(options.model);
  const ModelSpec config = load_config(options.model);
  const RopeScaling rope = resolve_rope(config.rope(), options.rope);
  if (!config.has_rope() && rope != config.rope())
    throw UsageError("--rope options: a " + config.family + " has no RoPE; its positions are ALiBi");
  runtime.backend = open_backend(options);
  const std::optional<DType> dtype = storage_dtype(options);
  check_weight_memory(config, dtype, *runtime.backend);
  {
    Progress progress("loading", 100, options.quiet);
    const auto show = [&](size_t done, size_t total) {
      progress.update(static_cast<int64_t>(100 * done / total), std::to_string(total >> 20) + " MiB");
    };
    runtime.model = load_model(options.model, config, *runtime.backend, dtype, show);
  }
  print_warnings(runtime.model.spec.warnings, options.quiet);
  runtime.session = session_options(options, runtime.model, rope);
  warn_slow_attention(options, runtime);
  runtime.session.on_not_finite = warn_not_finite(options, runtime.model);
  runtime.session.on_saturated = warn_saturated(options);
  runtime.load_seconds = seconds_since(start);
  return runtime;
}

std::vector<int32_t> eos_ids(const Model& model, const Tokenizer& tokenizer) {
  return model.spec.eos_token_ids.empty() ? tokenizer.eos_ids() : model.spec.eos_token_ids;
}

}  // namespace lariat
