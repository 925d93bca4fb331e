#pragma once
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer.h"

namespace lariat {

namespace jinja {
struct Program;
}

// Converts messages to a prompt, byte for byte as apply_chat_template of transformers 5.23. Unsupported Jinja
// syntax is an error on parsing, another unsupported feature on rendering. Cheap to copy, thread-safe.
class ChatTemplate {
 public:
  // Loads chat_template.jinja, else "chat_template" of tokenizer_config.json, else chat_template.json, else
  // the built-in template of Qwen 1, ChatGLM2, 3 or GLM-4. variables: keyword arguments of
  // apply_chat_template (enable_thinking, …). nullopt: no template. Throws Error naming file and line.
  static std::optional<ChatTemplate> load(
      const ModelTexts& texts, const Tokenizer& tokenizer,
      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

  // `file` is for errors; `variables` is an object.
  static ChatTemplate parse(std::string_view source, const std::filesystem::path& file,
                            nlohmann::ordered_json variables);

  // One for each loaded variable that the template never reads.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // True if a rendering sets the variable `name` itself.
  static bool sets(std::string_view name);

  // messages: from parse_messages. variables: additional ones. now: time of strftime_now (local), default:
  // the present. Linear in the messages. Throws Error if the template refuses the messages or uses an
  // unsupported feature.
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                     const nlohmann::ordered_json& variables = {}, std::optional<std::time_t> now = {}) const;

 private:
  ChatTemplate() = default;
  std::shared_ptr<const jinja::Program> program_;
  std::string file_;
  nlohmann::ordered_json variables_;
  std::vector<std::string> warnings_;
};

// Parses a JSON list of {"role": text, "content": text or list, …}. Throws Error.
nlohmann::ordered_json parse_messages(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
