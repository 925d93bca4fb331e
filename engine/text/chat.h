#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/generate.h"
#include "models/text/chat_template.h"

namespace lariat {

// A conversation with a model. Each answer renders all messages with the chat template and keeps the cached
// common prefix, so templates may trim messages or drop earlier reasoning.
class Conversation {
 public:
  // All three must outlive the conversation.
  Conversation(Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  const nlohmann::ordered_json& messages() const { return messages_; }
  const SavedContext& context() const { return context_; }

  // Adds the user's message and generates an answer; `on_text` receives its pieces.
  // options.generate.interrupted ends the answer, or throws Interrupted before its first token. After
  // Interrupted or an Error (context full, message refused, out of memory) the conversation is unchanged,
  // except that a partial answer stays.
  Answer answer(const std::string& message, const AnswerOptions& options, const TextFn& on_text,
                const TextProgressFn& progress = {});

  // "": no system message. Throws Error, without a change, if the template does not know the role.
  void set_system(const std::string& text);
  // Keeps the system message.
  void reset();

  // Continues a saved context; tokens without a conversation stay before the messages. Throws Error, naming
  // `file`, for invalid messages in the note.
  void restore(SavedContext context, const std::string& file);
  // The messages for restore() (SavedContext::note).
  std::string note() const;

 private:
  std::vector<int32_t> rendered() const;

  Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  SavedContext context_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<int32_t> before_;  // tokens before the first message
};

// Whether the messages begin with a system message, and the same messages with this one ("": none).
bool has_system(const nlohmann::ordered_json& messages);
nlohmann::ordered_json with_system(const nlohmann::ordered_json& messages, const std::string& text);

// The token after an assistant's message, which may differ from the configuration's end-of-text token.
std::optional<int32_t> end_of_turn_id(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace lariat
