#include "engine/chat.h"

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

}  // namespace

Conversation::Conversation(Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : tokenizer_(tokenizer), template_(chat_template), context_(session, tokenizer) {}

// The tokens that the cache is to hold before an answer.
std::vector<int32_t> Conversation::rendered() const {
  std::vector<int32_t> ids = tokenizer_.encode(template_.render(messages_, true), false);
  if (before_.empty()) return ids;
  // A text begins once: no second BOS behind what stands before the messages.
  const bool begins = !ids.empty() && ids.front() == tokenizer_.bos_id();
  std::vector<int32_t> all = before_;
  all.insert(all.end(), ids.begin() + (begins ? 1 : 0), ids.end());
  return all;
}

Answer Conversation::answer(const std::string& text, const AnswerOptions& options, const TextFn& on_text,
                            const TextProgressFn& progress) {
  messages_.push_back(message("user", text));
  Answer answer;
  try {
    context_.write(rendered(), options, /*goes_on=*/false, answer, on_text, progress);
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
  Messages next = changed;
  next.push_back(message("user", "?"));
  template_.render(next, true);  // throws where the template knows no such role
  messages_ = std::move(changed);
}

void Conversation::reset() {
  const Messages none = Messages::array();
  messages_ = has_system(messages_) ? Messages::array({messages_.front()}) : none;
  context_.truncate(std::ssize(before_));
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
  context_.restore(std::move(context));
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
  const std::string mark = "What an assistant says";
  const std::string text =
      chat_template.render(Messages::array({message("user", "?"), message("assistant", mark)}), false);
  const size_t at = text.rfind(mark);
  if (at == std::string::npos) return std::nullopt;
  for (const int32_t id : tokenizer.encode(std::string_view(text).substr(at + mark.size()), false)) {
    // Some files do not call the mark special. Runs of white space may be added tokens, too.
    const bool marks =
        tokenizer.is_added(id) && tokenizer.id_to_token(id).find_first_not_of(" \t\r\n") != text.npos;
    if (tokenizer.is_special(id) || marks) return id;
  }
  return std::nullopt;
}

}  // namespace lariat
