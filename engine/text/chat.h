#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/generate.h"
#include "models/text/chat_template.h"

namespace lariat {

// Messages and their text. Needs no session: a server renders and parses without one.
class Conversation {
 public:
  // Both must outlive the conversation.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : tokenizer_(tokenizer), template_(chat_template) {}

  const nlohmann::ordered_json& messages() const { return messages_; }
  std::span<const int32_t> before() const { return before_; }  // tokens before the first message
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Adds a message, or removes the last one.
  void add(const char* role, const std::string& content);
  void remove_last() { messages_.erase(messages_.size() - 1); }
  // "": no system message. Throws Error, without a change, if the template does not know the role.
  void set_system(const std::string& text);
  // Keeps the system message, and the tokens before.
  void reset();
  // The prompt for an answer. Throws Error if the template refuses the messages.
  std::vector<int32_t> prompt() const;

  // The messages for restore() (SavedContext::note).
  std::string note() const;
  // Continues `tokens`; without a note they all stay before the messages. Throws Error, naming `file` and
  // without a change, for invalid messages in the note.
  void restore(std::span<const int32_t> tokens, const std::string& note, const std::string& file);

 private:
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<int32_t> before_;
};

// A conversation and its KV cache. Each answer renders all messages with the chat template and keeps the
// cached common prefix, so templates may trim messages or drop earlier reasoning.
struct CachedConversation {
  CachedConversation(Session& in, Conversation messages)
      : session(in), text(std::move(messages)), context{in.new_sequence(), {}} {}

  // Adds the user's message and generates an answer; `on_text` receives its pieces.
  // options.generate.interrupted ends the answer, or throws Interrupted before its first token. After
  // Interrupted or an Error (context full, message refused, out of memory) the conversation is unchanged,
  // except that a partial answer stays.
  Answer answer(const std::string& message, const AnswerOptions& options, const TextFn& on_text,
                const TextProgressFn& progress = {});
  void reset();
  // Continues a saved context as Conversation::restore does.
  void restore(SavedContext saved, const std::string& file);
  void save(const std::filesystem::path& file) const;

  Session& session;
  Conversation text;
  SavedContext context;
};

// Whether the messages begin with a system message, and the same messages with this one ("": none).
bool has_system(const nlohmann::ordered_json& messages);
nlohmann::ordered_json with_system(const nlohmann::ordered_json& messages, const std::string& text);

// The token after an assistant's message, which may differ from the configuration's end-of-text token.
std::optional<int32_t> end_of_turn_id(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace lariat
