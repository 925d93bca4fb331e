#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/generate.h"
#include "models/text/chat_template.h"

namespace lariat {

// A conversation with a model. Before every answer the cache is made to hold what the chat template makes of
// all messages: the tokens that it has in common with what is there stay, the others are read. So nothing has
// to be assumed of the template, which may drop what a model thought in earlier turns, or trim a message.
class Conversation {
 public:
  // All three must outlive it.
  Conversation(Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  // A list of {"role", "content"}.
  const nlohmann::ordered_json& messages() const { return messages_; }
  const SavedContext& context() const { return context_; }

  // Adds the user's message and the model's answer to it, whose text `on_text` gets as it is written.
  // `progress` is called during the prefill. When options.generate.interrupted is set, the answer ends and
  // stays as far as it went; before its first token Interrupted is thrown. That, and an Error (the context is
  // full, the template refuses the message, memory), leaves the conversation as it was; what a failing answer
  // had written stays.
  Answer answer(const std::string& message, const AnswerOptions& options, const TextFn& on_text,
                const TextProgressFn& progress = {});

  // The system's message, which comes first; "": none. Throws Error, and changes nothing, when the template
  // does not know the role.
  void set_system(const std::string& text);
  // Forgets all messages but the system's.
  void reset();

  // A context that was put away, to be continued. One that is no conversation stands before the messages as
  // it is. Throws Error when what the file says of its messages is none (`file` names it).
  void restore(SavedContext context, const std::string& file);
  // The messages, for restore() (SavedContext::note).
  std::string note() const;

 private:
  std::vector<int32_t> rendered() const;

  Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  SavedContext context_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<int32_t> before_;  // tokens in front of the first message
};

// The special or added token that the template puts behind an assistant's message, if it puts one there:
// where an answer ends. It need not be the end-of-text token of the model's configuration.
std::optional<int32_t> end_of_turn_id(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace lariat
