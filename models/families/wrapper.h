#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace lariat {

// A decoder's config: the file itself, or of a model with an image part its text_config, with the keys that
// such a file may have at its top instead.
struct TextPart {
  nlohmann::json json;
  std::string prefix;  // of its keys in the file: "" or "text_config."
};

// Throws Error where the top is of a wrong type. `file` names the config in errors.
TextPart text_part(nlohmann::json config, const std::string& file);

}  // namespace lariat
