#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/generate.h"
#include "models/text/chat_template.h"

namespace lariat {

// A conversation with a model. Each answer renders all messages with the chat template, keeps the cached
// common prefix and prefills the other tokens. So templates may trim messages or drop earlier reasoning.
class Conversation {
 public:
  // All three must outlive the conversation.
  Conversation(Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  // A list of {"role", "content"}.
  const nlohmann::ordered_json& messages() const { return messages_; }
  const SavedContext& context() const { return context_; }

  // Adds the user's message and generates an answer, which `on_text` gets in pieces. `progress` is called
  // during the prefill. options.generate.interrupted ends the answer, or throws Interrupted before its first
  // token. After Interrupted or an Error (context full, message refused, out of memory) the conversation is
  // unchanged, except that a partial answer stays.
  Answer answer(const std::string& message, const AnswerOptions& options, const TextFn& on_text,
                const TextProgressFn& progress = {});

  // Sets the system message; "": none. Throws Error, without a change, if the template does not know the
  // role.
  void set_system(const std::string& text);
  // Removes all messages except the system message.
  void reset();

  // Continues a saved context. Without a conversation, its tokens stay before the messages. Throws Error,
  // naming `file`, for invalid messages in the note.
  void restore(SavedContext context, const std::string& file);
  // The messages as a note for restore() (SavedContext::note).
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

// The special or added token that the template puts after an assistant's message, if any. It may differ from
// the configuration's end-of-text token.
std::optional<int32_t> end_of_turn_id(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace lariat
