#include "engine/text/chat.h"

#include <algorithm>

#include "kernels/error.h"
#include "models/io/json_fields.h"

namespace lariat {
namespace {

using Messages = nlohmann::ordered_json;

Messages message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// "" if the template refuses the messages.
std::string attempt(const ChatTemplate& chat_template, const Messages& messages, bool prompt) {
  try {
    return chat_template.render(messages, prompt);
  } catch (const Error&) {
    return "";
  }
}

// Special and added tokens of a text: some files do not mark the end-of-turn token as special.
std::vector<int32_t> marks_in(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text, false);
  std::erase_if(ids, [&](int32_t id) {  // runs of white space may be added tokens, too
    const bool blank = tokenizer.id_to_token(id).find_first_not_of(" \t\r\n") == std::string::npos;
    return !tokenizer.is_special(id) && (!tokenizer.is_added(id) || blank);
  });
  return ids;
}

}  // namespace

bool has_system(const Messages& messages) {
  return !messages.empty() && messages.front().at("role") == "system";
}

Messages with_system(const Messages& messages, const std::string& text) {
  Messages result = Messages::array();
  if (!text.empty()) result.push_back(message("system", text));
  for (size_t i = has_system(messages) ? 1 : 0; i < messages.size(); ++i) result.push_back(messages[i]);
  return result;
}

void Conversation::add(const char* role, const std::string& content) {
  messages_.push_back(message(role, content));
}

std::vector<int32_t> Conversation::prompt() const {
  std::vector<int32_t> ids = tokenizer_.encode(template_.render(messages_, true), false);
  if (before_.empty()) return ids;
  // A text has one BOS: drops a BOS after earlier tokens.
  std::vector<int32_t> all = before_;
  all.insert(all.end(), ids.begin() + common_prefix(ids, tokenizer_.prefix()), ids.end());
  return all;
}

void Conversation::set_system(const std::string& text) {
  Messages changed = with_system(messages_, text);
  const auto asked = [](Messages messages) {
    messages.push_back(message("user", "?"));
    return messages;
  };
  // Throws if the template does not know the role. If it refuses the question even without the change, the
  // refusal proves nothing and is ignored.
  if (!attempt(template_, asked(messages_), true).empty()) template_.render(asked(changed), true);
  messages_ = std::move(changed);
}

void Conversation::reset() {
  const Messages none = Messages::array();
  messages_ = has_system(messages_) ? Messages::array({messages_.front()}) : none;
}

void Conversation::restore(std::span<const int32_t> tokens, const std::string& note,
                           const std::string& file) {
  Messages messages = Messages::array();
  size_t before = tokens.size();
  if (!note.empty()) {
    const nlohmann::json object = parse_json_object(note, file);
    const JsonFields fields(object, file);
    before = static_cast<size_t>(fields.need_integer("before", 0, std::ssize(tokens)));
    const std::string text = fields.need_string("messages");
    if (text != "[]") messages = parse_messages(text, file);  // "[]" does not parse; no messages
  }
  before_.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(before));
  messages_ = std::move(messages);
}

std::string Conversation::note() const {
  // The messages as text, so that parse_messages() checks them like a file.
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  const nlohmann::json note = {{"before", before_.size()},
                               {"messages", messages_.dump(-1, ' ', false, replace)}};
  return note.dump();
}

Answer CachedConversation::answer(const std::string& question, const AnswerOptions& options,
                                  const TextFn& on_text, const TextProgressFn& progress) {
  text.add("user", question);
  Answer answer;
  try {
    continue_context(session, text.tokenizer(), context, text.prompt(), options,
                     /*continues=*/false, answer, on_text, progress);
  } catch (...) {
    if (answer.generation.tokens.empty()) {
      text.remove_last();
    } else {
      text.add("assistant", answer.text);
    }
    throw;
  }
  text.add("assistant", answer.text);
  return answer;
}

void CachedConversation::reset() {
  text.reset();
  context.sequence.truncate(std::ssize(text.before()));
  context.tokens.resize(std::min(context.tokens.size(), text.before().size()));
}

void CachedConversation::restore(SavedContext saved, const std::string& file) {
  text.restore(saved.tokens, saved.note, file);
  context = std::move(saved);
}

void CachedConversation::save(const std::filesystem::path& file) const {
  save_context(session, context.sequence, context.tokens, file, text.note());
}

std::optional<int32_t> end_of_turn_id(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  const std::string question = "?", answer = "What an assistant says";
  // Uses the first of these conversations that the template accepts and renders with the answer.
  constexpr struct {
    bool system, user_last, prompt;
  } kOurs[] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 1, 1}, {1, 1, 1}};
  for (const auto& [system, user_last, prompt] : kOurs) {
    Messages messages =
        with_system({message("user", question), message("assistant", answer)}, system ? question : "");
    if (user_last) messages.push_back(message("user", question));
    const std::string text = attempt(chat_template, messages, prompt);
    const size_t at = text.rfind(answer);
    if (at == std::string::npos) continue;
    const std::string_view all = text, behind = all.substr(at + answer.size());
    std::vector<int32_t> ids =
        marks_in(tokenizer, behind.substr(0, user_last ? behind.rfind(question) : behind.size()));
    if (user_last) {  // tokens that open the next message do not end the answer
      const std::vector<int32_t> opening = marks_in(tokenizer, all.substr(0, all.find(question)));
      ids.erase(std::mismatch(ids.rbegin(), ids.rend(), opening.rbegin(), opening.rend()).first.base(),
                ids.end());
    }
    if (!ids.empty()) return ids.front();
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lariat
