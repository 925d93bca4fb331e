#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/rope_options.h"
#include "engine/runtime/session.h"
#include "models/model.h"
#include "models/text/chat_template.h"
#include "models/text/tokenizer.h"

namespace lariat {

// The files of a model's folder that are read beside its configuration and weights.
enum class Reads {
  kTokens,  // nothing: ids of tokens go in
  kText,    // the tokenizer
  kChat,    // the chat template too, without which opening fails
};

// The dtypes of a cache; unset: f16 keys, values in the model's dtype.
struct KvDTypes {
  std::optional<DType> keys{}, values{};
};

// How a model is opened. Errors call the members by these names, in backticks.
struct OpenOptions {
  Reads reads = Reads::kText;
  std::string device = "auto";             // auto: a GPU if there is one; cpu, cuda or cuda:N
  int threads = 0;                         // of the CPU; 0: every core
  std::optional<DType> dtype{};            // of the weights; unset: the checkpoint's own
  std::optional<WeightFormat> quantize{};  // what weights are turned into at load: q8, or 4 bits
  KvDTypes kv_dtype{};
  int64_t max_ctx = 0, prefill_chunk = 512;  // as in SessionOptions
  RopeOptions rope{};
  int rope_steps = 4;
  bool stale_cache = false;
  std::string position_method{};  // parse_position_method; empty: the model's own, "none": none
  bool random_weights = false;    // the path is a config.json, and there are no weights
  // Variables of the chat template beside those that it always has.
  nlohmann::ordered_json template_variables = nlohmann::ordered_json::object();
  std::function<void(size_t done, size_t total)> progress{};  // of the bytes of weights
  // Called with a line for each thing that shows only while the model runs: weights and results that are not
  // finite, a cache that cuts values, what a GPU does slowly. Unset: nobody looks for them.
  std::function<void(const std::string& line)> warn{};
};

// A model that is ready to run, and all that belongs to it.
struct Engine {
  Engine() = default;
  Engine(Engine&&) = default;
  // The old model goes before the backend that holds its weights; member by member it would go after it.
  Engine& operator=(Engine&& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }

  OpenOptions options;
  std::optional<Tokenizer> tokenizer;  // unset where it was not asked for (OpenOptions::reads)
  std::optional<ChatTemplate> chat;
  std::unique_ptr<Backend> backend;
  Model model;
  SessionOptions session_options;
  std::vector<std::string> warnings;  // a line for each thing that a user should know
  double load_seconds = 0;            // for the configuration and the weights

  // Opens a checkpoint's folder. Throws UsageError for options that make no sense together or with this
  // model, and Error naming the file, also where the weights would not fit into memory.
  static Engine open(const std::filesystem::path& path, OpenOptions options = {});

  Session session() const { return {model, *backend, session_options}; }
  // The options of a session with another scaling.
  SessionOptions session_for(const RopeScaling& rope) const;
  // The tokens that end a text: the ids of the configuration, else the tokenizer's, and with a chat template
  // what it puts behind a message.
  std::vector<int32_t> eos_ids() const;
};

}  // namespace lariat
