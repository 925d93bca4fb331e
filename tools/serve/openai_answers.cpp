// Answers in OpenAI's shapes.
#include <fmt/format.h>

#include <algorithm>

#include "models/text/unicode.h"
#include "tools/output.h"
#include "tools/serve/openai.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// "bytes:\xe9\x80" for a part of a character.
std::string token_text(const Tokenizer& tokenizer, int32_t token) {
  std::string bytes = tokenizer.bytes_of(token);
  if (is_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

double finite(double logprob) { return std::max(logprob, -9999.0); }

Json usage_json(const Asked& asked) {
  int64_t prompt = 0, written = 0, shared = 0;
  for (size_t i = 0; i < asked.choices.size(); ++i) {
    prompt += std::ssize(asked.choices[i].prompt);
    written += std::ssize(asked.texts->texts[i].answer.generation.tokens);
    shared += asked.texts->texts[i].answer.generation.shared;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", written},
          {"total_tokens", prompt + written},
          {"prompt_tokens_details", {{"cached_tokens", shared}}}};
}

const char* finish_reason(const ServedText& text) {
  const StopReason reason = text.answer.generation.stop_reason;
  return reason == StopReason::kEos || reason == StopReason::kStop ? "stop" : "length";
}

// The legacy schema: the first token of an echoed prompt has none.
Json legacy_logprobs(const ServedModel& model, const Asked& asked, Choice& choice,
                     const Generation& written) {
  const Tokenizer& tokenizer = *model.engine.tokenizer;
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  const auto add = [&](int32_t token, const TokenScore* score) {
    const std::string text = token_text(tokenizer, token);
    tokens.push_back(text);
    offsets.push_back(std::max<int64_t>(choice.sent_chars, 0));
    if (!tokenizer.is_special(token)) choice.sent_chars += count_chars(tokenizer.bytes_of(token));
    if (score == nullptr) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      return;
    }
    logprobs.push_back(finite(score->logprob));
    Json top = Json::object();
    for (const auto& [other, logprob] : score->top) {
      const std::string name = token_text(tokenizer, other);
      if (!top.contains(name)) top[name] = finite(logprob);  // the larger of two tokens with one text
    }
    if (!top.contains(text)) top[text] = finite(score->logprob);
    tops.push_back(std::move(top));
  };
  if (asked.echo) {
    // SentencePiece puts a space before the text.
    const auto first =
        std::ranges::find_if(choice.prompt, [&](int32_t id) { return !tokenizer.is_special(id); });
    if (first != choice.prompt.end() && tokenizer.bytes_of(*first).starts_with(' ') &&
        !choice.prompt_text.starts_with(' '))
      choice.sent_chars = -1;
    for (size_t at = 0; at < choice.prompt.size(); ++at)
      add(choice.prompt[at], at == 0 ? nullptr : &choice.prompt_scores.at(at - 1));
  } else if (choice.sent == 0) {
    choice.sent_chars = count_chars(choice.prompt_text);
  }
  for (; choice.sent < written.tokens.size(); ++choice.sent)
    add(written.tokens[choice.sent], &written.logprobs.at(choice.sent));
  // lm-eval drops the last of prompt + 1 entries unread.
  if (asked.echo && written.tokens.empty() && written.stop_reason == StopReason::kEos && choice.next)
    add(choice.next_token, &*choice.next);
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

Json chat_logprobs(const ServedModel& model, Choice& choice, const Generation& written) {
  const Tokenizer& tokenizer = *model.engine.tokenizer;
  const auto entry = [&](int32_t token, double logprob) -> Json {
    Json bytes = Json::array();
    for (const char c : tokenizer.bytes_of(token)) bytes.push_back(static_cast<unsigned char>(c));
    return {{"token", token_text(tokenizer, token)}, {"logprob", finite(logprob)}, {"bytes", bytes}};
  };
  Json content = Json::array();
  for (; choice.sent < written.tokens.size(); ++choice.sent) {
    const TokenScore& score = written.logprobs.at(choice.sent);
    Json one = entry(written.tokens[choice.sent], score.logprob);
    one["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : score.top) one["top_logprobs"].push_back(entry(token, logprob));
    content.push_back(std::move(one));
  }
  return {{"content", content}};
}

// For the tokens that no earlier chunk had.
Json logprobs_json(const ServedModel& model, Asked& asked, size_t i) {
  const Generation& written = asked.texts->texts[i].answer.generation;
  if (!asked.logprobs || (asked.stream && asked.choices[i].sent == written.tokens.size())) return nullptr;
  return asked.chat ? chat_logprobs(model, asked.choices[i], written)
                    : legacy_logprobs(model, asked, asked.choices[i], written);
}

Json envelope(const Asked& asked, const char* object, Json choices) {
  return {{"id", asked.id},
          {"object", object},
          {"created", asked.created},
          {"model", asked.model},
          {"choices", std::move(choices)}};
}

Json chunk(const Asked& asked, size_t i, const char* role, const std::string& piece, const Json& logprobs,
           const char* finish) {
  Json choice = {{"index", i}};
  if (asked.chat) {
    choice["delta"] = Json::object();
    if (role != nullptr) choice["delta"]["role"] = role;
    if (finish == nullptr) choice["delta"]["content"] = piece;
  } else {
    choice["text"] = piece;
  }
  choice["logprobs"] = logprobs;
  choice["finish_reason"] = finish != nullptr ? Json(finish) : Json(nullptr);
  Json json =
      envelope(asked, asked.chat ? "chat.completion.chunk" : "text_completion", Json::array({choice}));
  if (asked.include_usage) json["usage"] = nullptr;
  return json;
}

}  // namespace

Json to_json(const ApiError& error) {
  return {{"error",
           {{"message", one_line(error.what())},
            {"type", error.type},
            {"param", nullptr},
            {"code", error.code.empty() ? Json(nullptr) : Json(error.code)}}}};
}

Json answer_json(const ServedModel& model, Asked& asked) {
  Json choices = Json::array();
  for (size_t i = 0; i < asked.choices.size(); ++i) {
    const ServedText& text = asked.texts->texts[i];
    Json choice = {{"index", i}};
    if (asked.chat)
      choice["message"] = {{"role", "assistant"}, {"content", text.answer.text}};
    else
      choice["text"] = (asked.echo ? asked.choices[i].prompt_text : "") + text.answer.text;
    choice["logprobs"] = logprobs_json(model, asked, i);
    choice["finish_reason"] = finish_reason(text);
    choices.push_back(std::move(choice));
  }
  Json json = envelope(asked, asked.chat ? "chat.completion" : "text_completion", std::move(choices));
  json["usage"] = usage_json(asked);
  return json;
}

Json first_chunk(const Asked& asked, size_t choice) {
  return chunk(asked, choice, "assistant", "", nullptr, nullptr);
}
Json text_chunk(const ServedModel& model, Asked& asked, size_t choice, const std::string& piece) {
  Json json = chunk(asked, choice, nullptr, piece, logprobs_json(model, asked, choice), nullptr);
  const TextState& state = asked.texts->texts[choice].state;
  json["lariat"] = {
      {"length", state.length}, {"rope_scale", state.rope_scale}, {"rerotations", state.rerotations}};
  return json;
}
Json last_chunk(const ServedModel& model, Asked& asked, size_t choice) {
  return chunk(asked, choice, nullptr, "", logprobs_json(model, asked, choice),
               finish_reason(asked.texts->texts[choice]));
}
Json usage_chunk(const Asked& asked) {
  Json json = envelope(asked, asked.chat ? "chat.completion.chunk" : "text_completion", Json::array());
  json["usage"] = usage_json(asked);
  return json;
}

void check_errors(const Asked& asked) {
  for (const ServedText& text : asked.texts->texts) {
    if (text.answer.generation.error == nullptr) continue;
    try {
      std::rethrow_exception(text.answer.generation.error);
    } catch (const UsageError& error) {
      throw ApiError(400, error.what());
    } catch (const std::exception& error) {
      throw ApiError(500, error.what(), "server_error");
    }
  }
}

}  // namespace lariat
