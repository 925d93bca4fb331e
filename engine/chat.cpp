#include "engine/chat.h"

#include <algorithm>

#include "engine/interrupt.h"
#include "engine/stop_filter.h"
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
    : session_(session), tokenizer_(tokenizer), template_(chat_template), sequence_(session.new_sequence()) {}

// What the cache is to hold before an answer.
std::vector<int32_t> Conversation::rendered() const {
  std::vector<int32_t> ids = tokenizer_.encode(template_.render(messages_, true), false);
  if (before_.empty()) return ids;
  // A text begins once: no second BOS behind what stands before the messages.
  const bool begins = !ids.empty() && ids.front() == tokenizer_.bos_id();
  std::vector<int32_t> all = before_;
  all.insert(all.end(), ids.begin() + (begins ? 1 : 0), ids.end());
  return all;
}

// Forgets what the cache does not have in common with `wanted`; returns the tokens that it lacks. The last
// one is always read, as it brings the logits.
std::span<const int32_t> Conversation::keep_common(std::vector<int32_t> wanted) {
  const auto same = std::mismatch(tokens_.begin(), tokens_.end(), wanted.begin(), wanted.end()).first;
  const size_t most = wanted.empty() ? 0 : wanted.size() - 1;
  const auto common = static_cast<size_t>(same - tokens_.begin()), kept = std::min(common, most);
  sequence_.truncate(static_cast<int64_t>(common));
  sequence_.rewind(static_cast<int64_t>(kept));
  tokens_ = std::move(wanted);
  return std::span<const int32_t>(tokens_).subspan(kept);
}

Answer Conversation::answer(const std::string& text, const AnswerOptions& options, const TextFn& on_text,
                            const ProgressFn& progress) {
  messages_.push_back(message("user", text));
  Answer answer;
  StreamDecoder decoder(tokenizer_);  // the answer is a text of its own
  StopFilter filter(options.stop);
  const auto show = [&](const std::string& piece) {
    answer.text += piece;
    return piece.empty() || on_text(piece);
  };
  std::vector<int32_t> written;
  // The last token of an answer was not read yet.
  const auto settle = [&](bool keep) {
    tokens_.insert(tokens_.end(), written.begin(), written.end());
    tokens_.resize(static_cast<size_t>(sequence_.length()));
    if (keep) {
      messages_.push_back(message("assistant", answer.text));
    } else {
      messages_.erase(messages_.size() - 1);
    }
  };
  try {
    const std::vector<int32_t> all = rendered();
    const std::span<const int32_t> prompt = keep_common(all);
    answer.read = std::ssize(prompt);
    answer.reused = std::ssize(all) - answer.read;
    GenerateOptions generation = options.generate;
    generation.cached = std::span(all).first(static_cast<size_t>(answer.reused));
    answer.generation = generate(
        session_, sequence_, prompt, generation,
        [&](int32_t id) {
          written.push_back(id);
          return show(filter.push(decoder.push(id))) && !filter.stopped();
        },
        [&](int64_t done) {
          stop_if(options.generate.interrupted);
          if (progress) progress(done, answer.read);
        });
    show(filter.push(decoder.flush()));
    show(filter.flush());
  } catch (...) {
    settle(!written.empty());
    throw;
  }
  settle(true);
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
  sequence_.truncate(std::ssize(before_));
  tokens_.resize(static_cast<size_t>(sequence_.length()));
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
  sequence_ = std::move(context.sequence);
  tokens_ = std::move(context.tokens);
  messages_ = std::move(messages);
  before_.assign(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(before));
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
