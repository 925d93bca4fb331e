#include "models/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/error.h"
#include "models/io/json_fields.h"
#include "models/io/json_file.h"
#include "models/io/nearest_name.h"
#include "models/text/jinja_tree.h"
#include "models/text/tokenizer_settings.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

[[noreturn]] void fail(const std::string& file, const jinja::Failure& failure) {
  std::string what = failure.what();
  std::replace(what.begin(), what.end(), '\n', ' ');  // raise_exception may give several lines
  if (failure.line == 0) throw Error(fmt::format("{}: {}", file, what));
  throw Error(fmt::format("{}: line {}: {}", file, failure.line, what));
}

// "chat_template": a string, or several named ones.
std::optional<std::string> template_text(const Json& object, const std::string& file) {
  const auto at = object.find("chat_template");
  if (at == object.end() || at->is_null()) return std::nullopt;
  if (at->is_string()) return at->get<std::string>();
  if (at->is_object() && at->contains("default") && at->at("default").is_string())
    return at->at("default").get<std::string>();
  for (const Json& entry : at->is_array() ? *at : Json::array()) {
    if (entry.is_object() && entry.value("name", Json()) == "default" &&
        entry.value("template", Json()).is_string())
      return entry.at("template").get<std::string>();
  }
  throw Error(file + ": key 'chat_template': expected a text or a list with a template named \"default\"");
}

Json object_of(const ModelTexts& texts, std::string_view name) {
  return texts.has(name) ? texts.object(name) : Json::object();
}

// Removes null members, and adds a message's reasoning under transformers' names.
ordered_json prepared(const ordered_json& messages) {
  ordered_json out = ordered_json::array();
  for (const ordered_json& message : messages) {
    ordered_json kept = ordered_json::object(), reasoning;
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
      if (reasoning.is_null() && message.contains(key)) reasoning = message.at(key);
    }
    if (!reasoning.is_null()) kept["thinking"] = reasoning;
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) kept[key] = value;
    }
    if (!reasoning.is_null()) kept["reasoning_content"] = reasoning;
    out.push_back(std::move(kept));
  }
  return out;
}

// nullptr: the tokenizer's class has no template.
const char* template_in_code(const ModelTexts& texts) {
  const Json declared = object_of(texts, "tokenizer_config.json").value("tokenizer_class", Json(""));
  const auto* known = tok::find_class(texts, declared.is_string() ? declared.get<std::string>() : "");
  if (known == nullptr || known->chat_template == nullptr) return nullptr;
  const Json format = object_of(texts, "generation_config.json").value("chat_format", Json());
  return known->chat_format == nullptr || format == known->chat_format ? known->chat_template : nullptr;
}

// The variables, functions and filters that a template names.
std::vector<std::string> names_in(std::string_view source) {
  std::vector<std::string> names;
  bool member = false;
  for (jinja::Token& token : jinja::tokenize(source)) {
    if (token.kind == jinja::Token::Kind::kName && !member) names.push_back(token.text);
    member = token.kind == jinja::Token::Kind::kSymbol && token.text == ".";
  }
  return names;
}

std::string where(const fs::path& file, size_t message) {
  return fmt::format("{}: message {}", file.string(), message + 1);
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::load(const ModelTexts& texts, const Tokenizer& tokenizer,
                                               const ordered_json& variables) {
  ordered_json all = tokenizer.special_tokens();
  all.update(variables);
  const auto made = [&](std::string_view text, const fs::path& file) {
    ChatTemplate parsed = parse(text, file, all);
    const std::vector<std::string> names = names_in(text);
    for (const auto& [name, value] : variables.items()) {
      if (std::ranges::find(names, name) != names.end()) continue;
      const std::string nearest = nearest_name(name, names);
      parsed.warnings_.push_back(fmt::format("{}: reads no variable {}, so `template_var` {} has no effect{}",
                                             file.string(), name, name,
                                             nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
    return parsed;
  };
  if (constexpr std::string_view kOwn = "chat_template.jinja"; texts.has(kOwn))
    return made(texts.read(kOwn, kMaxTemplateBytes), texts.file(kOwn));
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const std::string file = texts.file(name).string();
    if (const auto text = template_text(object_of(texts, name), file))
      return made(*text, file + ": chat_template");
  }
  if (const char* text = template_in_code(texts))
    return made(text, texts.path().string() + ": chat markup of the published code");
  return std::nullopt;
}

ChatTemplate ChatTemplate::parse(std::string_view source, const fs::path& file, ordered_json variables) {
  ChatTemplate made;
  made.file_ = file.string();
  made.variables_ = std::move(variables);
  try {
    made.program_ = std::make_shared<const jinja::Program>(jinja::parse(source));
  } catch (const jinja::Failure& failure) {
    fail(made.file_, failure);
  }
  return made;
}

bool ChatTemplate::sets(std::string_view name) {
  return has_name("messages add_generation_prompt tools documents", name) || has_name(tok::kRoles, name);
}

std::string ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt,
                                 const ordered_json& variables, std::optional<std::time_t> now) const {
  if (!messages.is_array() || messages.empty()) throw Error("the conversation has no messages; add one");
  jinja::Context cx({}, now ? *now : std::time(nullptr));
  try {
    std::vector<std::pair<std::string, jinja::Value>> values;
    // The last value of a name wins.
    for (const char* absent : {"tools", "documents"}) values.emplace_back(absent, jinja::none());
    for (const ordered_json* source : {&variables_, &variables}) {
      for (const auto& [key, value] : source->items()) values.emplace_back(key, jinja::from_json(cx, value));
    }
    values.emplace_back("messages", jinja::from_json(cx, prepared(messages)));
    values.emplace_back("add_generation_prompt", jinja::boolean(add_generation_prompt));
    return jinja::render(*program_, cx, values);
  } catch (const jinja::Failure& failure) {
    fail(file_, failure);
  }
}

ordered_json parse_messages(std::string_view text, const fs::path& file) {
  ordered_json messages = parse_ordered_json(text, file.string());
  if (!messages.is_array() || messages.empty())
    throw Error(file.string() + ": expected a list of messages, [{\"role\": \"user\", \"content\": \"…\"}]");
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& message = messages[i];
    if (!message.is_object())
      throw Error(where(file, i) + ": expected an object with \"role\" and \"content\"");
    if (!message.contains("role") || !message.at("role").is_string())
      throw Error(where(file, i) + ": expected a \"role\": \"system\", \"user\" or \"assistant\"");
    const bool content = message.contains("content");
    if (content && !message.at("content").is_string() && !message.at("content").is_array() &&
        !message.at("content").is_null())
      throw Error(where(file, i) + ": expected a text or a list as \"content\"");
    if (!content && message.size() == 1) throw Error(where(file, i) + ": expected a \"content\"");
  }
  return messages;
}

}  // namespace lariat
