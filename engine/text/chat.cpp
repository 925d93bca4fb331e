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

bool has_system(const Messages& messages) {
  return !messages.empty() && messages.front().at("role") == "system";
}

Messages with_system(const Messages& messages, const std::string& text) {
  Messages result = Messages::array();
  if (!text.empty()) result.push_back(message("system", text));
  for (size_t i = has_system(messages) ? 1 : 0; i < messages.size(); ++i) result.push_back(messages[i]);
  return result;
}

// The messages as the template renders them; "" where it refuses them.
std::string attempt(const ChatTemplate& chat_template, const Messages& messages, bool prompt) {
  try {
    return chat_template.render(messages, prompt);
  } catch (const Error&) {
    return "";
  }
}

// The special and added tokens of a text; some files do not call the mark of a turn's end special.
std::vector<int32_t> marks_in(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text, false);
  std::erase_if(ids, [&](int32_t id) {  // runs of white space may be added tokens, too
    const bool blank = tokenizer.id_to_token(id).find_first_not_of(" \t\r\n") == std::string::npos;
    return !tokenizer.is_special(id) && (!tokenizer.is_added(id) || blank);
  });
  return ids;
}

}  // namespace

Conversation::Conversation(Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : session_(session),
      tokenizer_(tokenizer),
      template_(chat_template),
      context_{session.new_sequence(), {}} {}

// The tokens that the cache is to hold before an answer.
std::vector<int32_t> Conversation::rendered() const {
  std::vector<int32_t> ids = tokenizer_.encode(template_.render(messages_, true), false);
  if (before_.empty()) return ids;
  // A text begins once: no second BOS behind what stands before the messages.
  std::vector<int32_t> all = before_;
  all.insert(all.end(), ids.begin() + common_prefix(ids, tokenizer_.prefix()), ids.end());
  return all;
}

Answer Conversation::answer(const std::string& text, const AnswerOptions& options, const TextFn& on_text,
                            const TextProgressFn& progress) {
  messages_.push_back(message("user", text));
  Answer answer;
  try {
    continue_context(session_, tokenizer_, context_, rendered(), options, /*continues=*/false, answer,
                     on_text, progress);
  } catch (...) {
    if (answer.generation.tokens.empty()) {
      messages_.erase(messages_.size() - 1);
    } else {
      messages_.push_back(message("assistant", answer.text));
    }
    throw;
  }
  messages_.push_back(message("assistant", answer.text));
  return answer;
}

void Conversation::set_system(const std::string& text) {
  Messages changed = with_system(messages_, text);
  const auto asked = [](Messages messages) {
    messages.push_back(message("user", "?"));
    return messages;
  };
  // Throws where the template knows no such role. Where it refuses a question of ours as things are, for a
  // word or as it wants a system's message, that says nothing.
  if (!attempt(template_, asked(messages_), true).empty()) template_.render(asked(changed), true);
  messages_ = std::move(changed);
}

void Conversation::reset() {
  const Messages none = Messages::array();
  messages_ = has_system(messages_) ? Messages::array({messages_.front()}) : none;
  context_.sequence.truncate(std::ssize(before_));
  context_.tokens.resize(std::min(context_.tokens.size(), before_.size()));
}

void Conversation::restore(SavedContext context, const std::string& file) {
  Messages messages = Messages::array();
  size_t before = context.tokens.size();
  if (!context.note.empty()) {
    const nlohmann::json note = parse_json_object(context.note, file);
    const JsonFields fields(note, file);
    before = static_cast<size_t>(fields.need_integer("before", 0, std::ssize(context.tokens)));
    const std::string text = fields.need_string("messages");
    if (text != "[]") messages = parse_messages(text, file);  // it takes no empty list; here nothing was said
  }
  before_.assign(context.tokens.begin(), context.tokens.begin() + static_cast<std::ptrdiff_t>(before));
  context_ = std::move(context);
  messages_ = std::move(messages);
}

std::string Conversation::note() const {
  // The messages as a text: parse_messages() then sees what it sees of a file.
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  const nlohmann::json note = {{"before", before_.size()},
                               {"messages", messages_.dump(-1, ' ', false, replace)}};
  return note.dump();
}

std::optional<int32_t> end_of_turn_id(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  const std::string question = "?", answer = "What an assistant says";
  // The first of these conversations that the template takes, and in which the answer stands, decides.
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
    if (user_last) {  // what opens a message ends none
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
