#include "engine/lariat.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/memory_check.h"
#include "engine/stopwatch.h"
#include "engine/text/chat.h"
#include "kernels/counted.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cuda/make_cuda_backend.h"
#include "models/io/json_fields.h"
#include "models/load/config.h"
#include "models/load/open_files.h"
#include "models/positions/parse_position_method.h"

namespace lariat {
namespace {

std::unique_ptr<Backend> open_backend(const OpenOptions& options) {
  const std::string& device = options.device;
  const bool divided = options.ranks != nullptr;
  if (divided && device.starts_with("cuda"))
    throw UsageError("`device` " + device + ": several processes run on the CPU only; use `device` cpu");
  if (device != "cpu" && !divided) {
    const int index = device.starts_with("cuda:") ? std::stoi(device.substr(5)) : 0;
    const std::string why_not = cuda_unavailable_reason(index);
    if (why_not.empty()) return make_cuda_backend(index, options.warn);
    if (device != "auto") throw Error(fmt::format("`device` {}: {}; use `device` cpu", device, why_not));
  }
  return std::make_unique<CpuBackend>(options.threads);
}

// Warns once, about the first tensor with NaN or infinite values.
std::function<void()> on_not_finite(const OpenOptions& options, const Model& model) {
  return [warn = options.warn, tensors = model.files.tensors, file = model.spec.file.string(),
          warned = std::make_shared<bool>(false)] {
    if (std::exchange(*warned, true)) return;
    std::string what = file + ": the logits are not finite";
    if (const auto found = find_not_finite(*tensors)) {
      what =
          fmt::format("{}: tensor '{}' holds {} of {}", found->file.string(), found->tensor.substr(0, 200),
                      counted(found->values, "NaN or infinite value", "NaN or infinite values"), found->of);
    }
    warn(what + "; all further output is invalid");
  };
}

std::function<void(const Saturation&)> on_saturated(const OpenOptions& options) {
  return [warn = options.warn, warned = std::make_shared<bool>(false)](const Saturation& found) {
    if (std::exchange(*warned, true)) return;
    const bool keys = found.keys > 0, values = found.values > 0;
    warn(
        fmt::format("KV cache: {} numbers of the {} exceed f16 and were clamped to 65504, so the results "
                    "deviate from the model; use `kv_dtype` {}bf16",
                    found.keys + found.values,
                    keys && values ? "keys and values"
                    : keys         ? "keys"
                                   : "values",
                    keys && values ? ""
                    : keys         ? "k="
                                   : "v="));
  };
}

void warn_of_settings(Engine& engine) {
  const SessionOptions& session = engine.session_options;
  const DType k = session.k_dtype, v = session.v_dtype;
  const bool every_token = session.rope_steps == 0 && session.rope->depends_on_length();
  if (every_token && k != DType::kF32 && !session.stale_cache) {
    engine.warnings.push_back(fmt::format(
        "`rope_steps` exact: rounds small rotations of {} keys away; use `kv_dtype` f32", name_of(k)));
  }
  const int64_t head_dim = engine.model.spec.layers.front().attention.head_dim;
  const auto fast_attention = engine.backend->traits().fast_attention;
  if (!fast_attention(k, v, head_dim) && fast_attention(DType::kF16, DType::kF16, head_dim)) {
    engine.warnings.push_back(
        fmt::format("`kv_dtype`: attention over {} keys and {} values does not use the tensor cores and is "
                    "several times slower; use `kv_dtype` f16",
                    name_of(k), name_of(v)));
  }
}

// Throws on every rank if one has an error; a rank with an error rethrows it.
void agree_on_errors(Communicator& ranks, const std::exception_ptr& error, const std::string& what) {
  constexpr size_t kBytes = 1000;
  std::string mine = what, all(kBytes * static_cast<size_t>(ranks.size()), 0);
  mine.resize(kBytes);
  ranks.all_gather(mine.data(), std::vector<size_t>(static_cast<size_t>(ranks.size()), kBytes), all.data());
  if (error) std::rethrow_exception(error);
  for (size_t r = 0; r < static_cast<size_t>(ranks.size()); ++r) {
    const char* const other = all.data() + r * kBytes;
    if (*other != 0) throw Error(fmt::format("rank {}: {}", r, std::string(other, ::strnlen(other, kBytes))));
  }
}

// Throws if a rank has read another model than rank 0.
void check_equal_models(Communicator& ranks, const Model& model, const std::filesystem::path& path) {
  std::string first = model.files.tensors ? model_fingerprint(model) : "", mine = first;
  first.resize(64), mine.resize(64);
  ranks.broadcast(first.data(), first.size());
  const bool differs = mine != first;
  agree_on_errors(
      ranks, nullptr,
      differs ? path.string() + ": differs from rank 0's; copy the same model to every machine" : "");
}

// Keys are re-rotated repeatedly: 8 bits are too few.
std::optional<DType> parse_side(std::string_view text, std::string_view word, bool values) {
  if (word == "auto") return std::nullopt;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8}) {
    if (word == name_of(dtype) && (values || dtype != DType::kQ8)) return dtype;
  }
  throw UsageError(fmt::format(
      "'{}' is not a cache dtype; use auto, f32, f16 or bf16 for both or for each, as in k=f16,v=q8 "
      "(q8 for values only: keys are rotated)",
      text));
}

}  // namespace

KvDTypes parse_kv_dtypes(std::string_view text) {
  if (text.find('=') == std::string_view::npos) {
    const auto both = parse_side(text, text, false);
    return {both, both};
  }
  KvDTypes result;
  for (const std::string_view part : split(text, ',')) {
    const bool values = part.starts_with("v=");
    const std::string_view word = values || part.starts_with("k=") ? part.substr(2) : std::string_view();
    (values ? result.values : result.keys) = parse_side(text, word, values);
  }
  return result;
}

Engine Engine::open(const std::filesystem::path& path, OpenOptions given) {
  Engine engine;
  engine.options = std::move(given);
  Communicator*& ranks = engine.options.ranks;
  if (ranks != nullptr && ranks->size() == 1) ranks = nullptr;
  if (ranks == nullptr) {
    engine.load(path);
    return engine;
  }
  // Rank 0's measurement decides, because each path rounds differently.
  cpu::Path path_of_products = cpu::path();
  ranks->broadcast(&path_of_products, sizeof path_of_products);
  cpu::request_path(path_of_products);
  std::exception_ptr error;
  std::string what;
  try {
    engine.load(path);
  } catch (const std::bad_alloc&) {
    error = std::current_exception();
    what = "out of memory";
  } catch (const std::exception& e) {
    error = std::current_exception();
    what = *e.what() != 0 ? e.what() : "failed";
  }
  agree_on_errors(*ranks, error, what);
  check_equal_models(*ranks, engine.model, path);
  if (ranks->rank() == 0)
    engine.session_options.ranks = (engine.ranks = std::make_unique<Ranks>(*ranks, engine.model.split)).get();
  return engine;
}

void Engine::load(const std::filesystem::path& path) {
  ModelFiles files = options.random_weights ? open_text_files(path) : open_files(path);
  const auto start = Stopwatch::now();
  const ModelSpec spec = load_config(files.texts);
  // A vocabulary of 262,144 tokens takes as long as the weights of a small model. A chat fails before those.
  // Without memory for a thread, get() loads it.
  std::future<void> text;
  if (options.reads != Reads::kTokens) text = std::async([this, texts = files.texts] { load_text(texts); });
  if (options.reads == Reads::kChat) text.get();
  load_weights(std::move(files), spec, text);
  if (text.valid()) text.get();
  if (tokenizer) warnings = tokenizer->warnings();
  for (const auto& more : {model.spec.warnings, chat ? chat->warnings() : std::vector<std::string>()})
    warnings.insert(warnings.end(), more.begin(), more.end());
  warn_of_settings(*this);
  load_seconds = seconds_since(start);
}

void Engine::load_text(const ModelTexts& texts) {
  tokenizer = Tokenizer::load(texts);
  if (options.reads == Reads::kText) return;
  chat = ChatTemplate::load(texts, *tokenizer, options.template_variables);
  if (!chat && options.reads == Reads::kChat) {
    throw Error(texts.path().string() +
                ": no chat template in chat_template.jinja, tokenizer_config.json or the GGUF key "
                "tokenizer.chat_template; use an instruct model, or put the markers into the prompt");
  }
}

void Engine::load_weights(ModelFiles files, const ModelSpec& spec, std::future<void>& text) {
  const RopeScaling rope = resolve_rope(spec.rope(), options.rope);
  check_rope(rope, spec);
  session_options.max_ctx = options.max_ctx;
  limit_context(session_options, spec);
  session_options.positions =
      options.position_method.empty()
          ? spec.position_method
          : parse_position_method(options.position_method, rope.original_ctx, options.max_ctx);
  check_position_method(session_options.positions, spec);
  if (options.quantize && options.dtype)
    throw UsageError("`quantize`: contradicts `dtype`; remove one of them");
  const std::optional<WeightFormat> requested = options.quantize ? options.quantize : options.dtype;
  backend = open_backend(options);
  // A missing tokenizer ends the load before it reads the weights.
  if (text.valid() && text.wait_for(std::chrono::seconds(0)) == std::future_status::ready) text.get();
  Place place;
  if (options.ranks != nullptr)
    place = {options.ranks->rank(), options.ranks->size(), options.split == "sequence"};
  if (options.random_weights) {
    model = random_model(spec, *backend, requested.value_or(spec.dtype), /*seed=*/1, place);
  } else {
    open_tensors(files);
    if (place.ranks == 1) check_weight_memory(spec, requested, *backend, files.tensors.get());
    model = load_model(std::move(files), spec, *backend, requested, options.progress, place);
  }
  session_options.prefill_chunk = options.prefill_chunk;
  session_options.rope_steps = options.rope_steps;
  session_options.stale_cache = options.stale_cache;
  if (is_quantized(model.weights.format.dtype)) session_options.activations = options.activations;
  if (options.warn && model.files.tensors) {
    session_options.on_not_finite = on_not_finite(options, model);
    session_options.on_saturated = on_saturated(options);
  }
  session_options = session_for(rope);
}

SessionOptions Engine::session_for(const RopeScaling& rope) const {
  SessionOptions other = session_options;
  other.rope = rope;
  // Re-rotation at every token needs f32: a step below half an ulp would be lost.
  const bool every_token = options.rope_steps == 0 && rope.depends_on_length();
  other.k_dtype = options.kv_dtype.keys.value_or(every_token ? DType::kF32 : DType::kF16);
  const DType embed = model.weights.embed.m.dtype;
  other.v_dtype = options.kv_dtype.values.value_or(is_quantized(embed) ? model.spec.dtype : embed);
  return other;
}

std::vector<int32_t> Engine::eos_ids() const {
  std::vector<int32_t> ids = model.spec.eos_token_ids;
  if (ids.empty() && tokenizer) ids = tokenizer->eos_ids();
  if (chat) {
    if (const auto end = end_of_turn_id(*tokenizer, *chat)) ids.push_back(*end);
  }
  return ids;
}

}  // namespace lariat
