#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/io/json_fields.h"

namespace lariat {

namespace tok {
struct Pipeline;
}

// A model's settings and vocabularies by their names in a Hugging Face folder ("config.json", ...), opened on
// demand.
class ModelTexts {
 public:
  // A folder, or a config file: a config.json gives access to its folder, another file does not.
  ModelTexts(std::filesystem::path path);  // NOLINT(google-explicit-constructor): a folder is its texts

  // Texts from a file in another format, made on demand, as bytes or as JSON.
  using Made = std::variant<std::string, nlohmann::json>;
  using Makers = std::map<std::string, std::function<Made()>, std::less<>>;
  // Reads a vocabulary that has no text into a tokenizer's parts.
  using Vocabulary = std::function<void(tok::Pipeline&)>;
  ModelTexts(std::filesystem::path path, Makers makers, Vocabulary vocabulary = {},
             JsonFields::Wording wording = {});

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(std::string_view name) const;
  bool has(std::string_view name) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }  // empty: the vocabulary is a text
  JsonFields::Wording wording(JsonFields::Wording plain) const { return wording_ ? wording_ : plain; }
  // Throws Error if longer than `max_bytes`.
  std::string read(std::string_view name, uint64_t max_bytes) const;
  // Result of read_json, for a large text with a single reader.
  nlohmann::json json(std::string_view name) const;
  // A JSON object of at most kMaxConfigBytes, parsed once for all copies, also on several threads. Throws
  // Error.
  const nlohmann::json& object(std::string_view name) const;

 private:
  std::filesystem::path path_, config_;
  std::optional<Makers> makers_;
  Vocabulary vocabulary_;
  JsonFields::Wording wording_;
  struct Objects {
    std::mutex mutex;
    std::map<std::string, nlohmann::json, std::less<>> parsed;
  };
  std::shared_ptr<Objects> objects_ = std::make_shared<Objects>();
};

}  // namespace lariat
