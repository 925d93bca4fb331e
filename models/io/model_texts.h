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

// The texts of a model, its settings and vocabularies, by the names that they have in a Hugging Face folder
// ("config.json", "tokenizer.json", ...). Nothing is opened before it is asked for.
class ModelTexts {
 public:
  // Of a folder, or of a config file alone: a config.json has what lies beside it, another has nothing.
  ModelTexts(std::filesystem::path path);  // NOLINT(google-explicit-constructor): a folder is its texts

  // Texts of one file that holds them in another form: each is made on demand, as its bytes or as the JSON
  // that these would hold. Errors name the file.
  using Made = std::variant<std::string, nlohmann::json>;
  using Makers = std::map<std::string, std::function<Made()>, std::less<>>;
  // Reads a vocabulary without a text of this kind into the parts of a tokenizer. Throws Error naming the
  // file.
  using Vocabulary = std::function<void(tok::Pipeline&)>;
  ModelTexts(std::filesystem::path path, Makers makers, Vocabulary vocabulary = {},
             JsonFields::Wording wording = {});

  const std::filesystem::path& path() const { return path_; }
  // What errors call the text.
  std::filesystem::path file(std::string_view name) const;
  bool has(std::string_view name) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }  // empty: a text holds it
  // Wording of errors about a member of a text.
  JsonFields::Wording wording(JsonFields::Wording plain) const { return wording_ ? wording_ : plain; }
  // Its bytes, at most so many. Throws Error naming the file.
  std::string read(std::string_view name, uint64_t max_bytes) const;
  // The text as JSON, as read_json reads a file. For a large text with a single reader.
  nlohmann::json json(std::string_view name) const;
  // The JSON object of settings (kMaxConfigBytes at most), parsed by the first caller and shared by all
  // copies of these texts. Throws Error naming the file.
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
