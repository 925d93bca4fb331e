#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
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

// Texts of a model, its settings and vocabularies, by their names in a Hugging Face folder ("config.json",
// "tokenizer.json", ...). Files are opened on demand.
class ModelTexts {
 public:
  // A folder, or a config file: a config.json gives access to its folder, another file does not.
  ModelTexts(std::filesystem::path path);  // NOLINT(google-explicit-constructor): a folder is its texts

  // Texts from one file in another format: each is made on demand, as bytes or as JSON. Errors name the file.
  using Made = std::variant<std::string, nlohmann::json>;
  using Makers = std::map<std::string, std::function<Made()>, std::less<>>;
  // Reads a vocabulary that has no text into the parts of a tokenizer. Throws Error naming the file.
  using Vocabulary = std::function<void(tok::Pipeline&)>;
  ModelTexts(std::filesystem::path path, Makers makers, Vocabulary vocabulary = {},
             JsonFields::Wording wording = {});

  const std::filesystem::path& path() const { return path_; }
  // Path of a text in errors.
  std::filesystem::path file(std::string_view name) const;
  bool has(std::string_view name) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }  // empty: the vocabulary is a text
  // Wording of errors about a member of a text.
  JsonFields::Wording wording(JsonFields::Wording plain) const { return wording_ ? wording_ : plain; }
  // A text's bytes, at most `max_bytes`. Throws Error naming the file.
  std::string read(std::string_view name, uint64_t max_bytes) const;
  // A text as JSON, as from read_json. For a large text with a single reader.
  nlohmann::json json(std::string_view name) const;
  // A JSON object of settings (at most kMaxConfigBytes), parsed on the first call and shared by all copies of
  // these texts. Throws Error naming the file.
  const nlohmann::json& object(std::string_view name) const;

 private:
  std::filesystem::path path_, config_;
  std::optional<Makers> makers_;
  Vocabulary vocabulary_;
  JsonFields::Wording wording_;
  using Objects = std::map<std::string, nlohmann::json, std::less<>>;
  std::shared_ptr<Objects> objects_ = std::make_shared<Objects>();
};

}  // namespace lariat
