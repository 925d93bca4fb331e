#pragma once
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rope_options.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/session.h"
#include "models/load/model.h"
#include "models/text/chat_template.h"
#include "models/text/tokenizer.h"

namespace lariat {

// Files to load besides configuration and weights.
enum class Reads {
  kTokens,  // none: the input is token ids
  kText,    // tokenizer
  kChat,    // tokenizer and chat template; opening fails without one
  kServed,  // tokenizer, and chat template if there is one
};

// Dtypes of the KV cache; unset: f16 keys, values in the model's dtype.
struct KvDTypes {
  std::optional<DType> keys{}, values{};
};

// Parses "auto", "f32", "f16" or "bf16" for both, or "k=..", "v=.." or "k=..,v=.."; values may be "q8".
// Throws UsageError.
KvDTypes parse_kv_dtypes(std::string_view text);

// Errors name the members in backticks.
struct OpenOptions {
  Reads reads = Reads::kText;
  std::string device = "auto";             // auto: a GPU if available; cpu, cuda or cuda:N
  int threads = 0;                         // CPU threads; 0: all cores
  std::optional<DType> dtype{};            // unset: the checkpoint's
  std::optional<WeightFormat> quantize{};  // format to convert weights to at load
  KvDTypes kv_dtype{};
  int activations = 8;                       // bits of activations times quantized weights: 8 or 16
  int64_t max_ctx = 0, prefill_chunk = 512;  // see SessionOptions
  RopeOptions rope{};
  int rope_steps = 4;
  bool stale_cache = false;
  std::string position_method{};  // parse_position_method; empty: the model's, "none": none
  bool random_weights = false;    // the path is a config.json without weights
  Communicator* ranks = nullptr;  // processes that divide the model; null or a group of one: none
  std::string split = "heads";    // what ranks divide of the KV cache: heads, or pages (sequence)
  // Additional variables of the chat template.
  nlohmann::ordered_json template_variables = nlohmann::ordered_json::object();
  std::function<void(size_t done, size_t total)> progress{};  // loaded bytes of the weights
  // Receives one line per run-time problem: non-finite values, cached values beyond f16, a slow GPU path.
  // Unset: no checks.
  std::function<void(const std::string& line)> warn{};
};

struct Engine {
  Engine() = default;
  Engine(Engine&&) = default;
  // Destroys the old model before its backend; memberwise assignment would reverse the order.
  Engine& operator=(Engine&& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }

  OpenOptions options;
  std::optional<Tokenizer> tokenizer;  // see OpenOptions::reads
  std::optional<ChatTemplate> chat;
  std::unique_ptr<Backend> backend;
  Model model;
  std::unique_ptr<Ranks> ranks;  // on rank 0 of several processes; others call follow()
  SessionOptions session_options;
  std::vector<std::string> warnings;
  double load_seconds = 0;

  // Throws UsageError for options that contradict each other or the model, and Error naming the file, also if
  // the weights exceed the memory. With several ranks, throws on all of them if opening failed on one, or if
  // their models differ.
  static Engine open(const std::filesystem::path& path, OpenOptions options = {});

  Session session() const { return {model, *backend, session_options}; }
  SessionOptions session_for(const RopeScaling& rope) const;
  // Stop tokens of the configuration, else the tokenizer, plus the chat template's end-of-turn token.
  std::vector<int32_t> eos_ids() const;

 private:
  void load(const std::filesystem::path& path);
  void load_text(const ModelTexts& texts);
  void load_weights(ModelFiles files, const ModelSpec& spec, std::future<void>& text);
};

}  // namespace lariat
