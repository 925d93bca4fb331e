#pragma once
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "models/text/tokenizer.h"

namespace lariat {

namespace jinja {
struct Program;
}

// A model's chat template: messages to the text that the model was trained on, byte for byte as
// apply_chat_template of transformers 5.23 makes it. Templates are programs, in Jinja; what lariat does not
// know of it is an error, of syntax at once and else where a rendering comes to it. Cheap to copy, safe to
// use from several threads.
class ChatTemplate {
 public:
  // The template of a model: chat_template.jinja, else "chat_template" of tokenizer_config.json
  // (a text, or a list of {name, template}: the one named "default"), else chat_template.json, else what the
  // code of Qwen 1, ChatGLM2, 3 and GLM-4 does in place of one. Its variables
  // are the tokenizer's special tokens, and `variables`, as the keyword arguments of apply_chat_template
  // (enable_thinking, …). Unset when there is none. Throws Error naming the file and the template's
  // line.
  static std::optional<ChatTemplate> load(
      const ModelTexts& texts, const Tokenizer& tokenizer,
      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

  // `file` stands for the template in errors; `variables` is an object.
  static ChatTemplate parse(std::string_view source, const std::filesystem::path& file,
                            nlohmann::ordered_json variables);

  // Whether a rendering sets a variable of that name itself.
  static bool sets(std::string_view name);

  // The text of `messages`, an array of {"role": …, "content": …, …} as parse_messages returns it.
  // `variables`: further ones. `now`: what strftime_now tells in local time; the present without it. Linear
  // in the messages. Throws Error when the template refuses the messages or does what lariat does not know or
  // allow, naming its file and line.
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                     const nlohmann::ordered_json& variables = {}, std::optional<std::time_t> now = {}) const;

 private:
  ChatTemplate() = default;
  std::shared_ptr<const jinja::Program> program_;
  std::string file_;
  nlohmann::ordered_json variables_;
};

// Checks a JSON text, a list of {"role": text, "content": text or list, …}, and returns it. Throws Error that
// names `file`, the message and what is wrong with it.
nlohmann::ordered_json parse_messages(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
