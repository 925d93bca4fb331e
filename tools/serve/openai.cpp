#include "tools/serve/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <random>

#include "engine/eval/measurement.h"
#include "engine/runtime/logprobs.h"
#include "kernels/counted.h"
#include "models/io/json_file.h"
#include "models/positions/parse_position_method.h"
#include "models/text/unicode.h"
#include "tools/output.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTexts = 128, kMostStops = 64, kMostTop = 100;
// Keys that change no answer of one model on one machine, or ask for the default.
constexpr const char* kHarmless =
    "user metadata store service_tier prompt_cache_key safety_identifier parallel_tool_calls cache_prompt "
    "model";

std::string new_id(const char* prefix) {
  static std::atomic<int64_t> last{0};
  return fmt::format("{}-{:x}-{}", prefix, std::time(nullptr), ++last);
}

// A value that asks for nothing: null, false, 0, "", an empty list or object, or `also`.
void refuse_set(const JsonFields& body, const char* key, const char* also = nullptr) {
  const nlohmann::json* value = body.find(key);
  if (is_set(value) && !(also != nullptr && *value == also)) body.fail(key, "not supported; leave it out");
}

template <class T>
void set(std::optional<T>& option, const std::optional<double>& value) {
  if (value) option = static_cast<T>(*value);
}

// Everything but the prompt. Returns the number of texts per prompt.
int64_t read_settings(const ServedModel& model, const JsonFields& body, Asked& asked, AnswerOptions& options,
                      SequenceOptions& sequence) {
  asked.model = model.name;
  asked.created = std::time(nullptr);
  asked.stream = body.boolean("stream").value_or(false);
  if (const auto stream = body.object("stream_options"))
    asked.include_usage = stream->boolean("include_usage").value_or(false);
  SamplingOptions sampling;
  sampling.as_model = true;
  set(sampling.temperature, body.number("temperature", 0, 1000));
  set(sampling.top_p, body.number("top_p", 0, 1));
  set(sampling.min_p, body.number("min_p", 0, 1));
  set(sampling.repetition_penalty, body.number("repetition_penalty", 0.01, 100));
  if (const auto top_k = body.integer("top_k", -1, 1 << 30)) sampling.top_k = std::max<int64_t>(*top_k, 0);
  const auto seed = body.integer("seed", INT64_MIN, INT64_MAX);
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : std::random_device{}();
  const GenerationDefaults& own = model.engine.model.spec.generation;
  if (!sampling.temperature && own.temperature.value == 0.0F) sampling.temperature = 1.0F;
  if (const nlohmann::json* stop = body.find("stop"); stop != nullptr && stop->is_string())
    options.stop = {stop->get<std::string>()};
  else if (stop != nullptr)
    options.stop = body.strings("stop").value_or(std::vector<std::string>());
  std::erase(options.stop, "");
  if (std::ssize(options.stop) > kMostStops) body.fail("stop", fmt::format("at most {} texts", kMostStops));
  settle_sampling(options, sampling, own);
  if (!body.boolean("ignore_eos").value_or(false))
    options.generate.eos_ids = asked.chat ? model.chat_eos_ids : model.eos_ids;
  for (const char* key : {"logit_bias", "suffix", "presence_penalty", "frequency_penalty", "functions"})
    refuse_set(body, key);
  if (const auto format = body.object("response_format"))
    if (format->string("type").value_or("text") != "text")
      body.fail("response_format", "only text is supported");
  const SessionOptions& session = model.engine.session_options;
  if (const auto scaling = body.string("rope_scaling")) {
    Column column;
    try {
      column = parse_column(*scaling);
    } catch (const Error&) {
      body.fail("rope_scaling",
                fmt::format("\"{:.40}\" is no scaling; use one such as yarn/factor=4", *scaling));
    }
    if (!column.method.empty()) body.fail("rope_scaling", "names a method; use position_method");
    RopeOptions rope;
    rope.scaling = column.scaling;
    rope.factor = column.factor;
    sequence.rope = resolve_rope(*session.rope, rope);
    check_rope(*sequence.rope, model.engine.model.spec);
  }
  if (const auto method = body.string("position_method")) {
    sequence.method = parse_position_method(*method, session.rope->original_ctx, session.max_ctx);
    check_position_method(*sequence.method, model.engine.model.spec);
  }
  const int64_t n = body.integer("n", 1, kMostTexts).value_or(1);
  if (body.integer("best_of", 1, kMostTexts).value_or(n) != n)
    body.fail("best_of", "not supported; leave it out");
  return n;
}

void refuse_unread(const JsonFields& body) {
  for (const std::string& key : body.unread_keys())
    if (!has_name(kHarmless, key)) body.fail(key, "unknown; leave it out");
}

void check_room(const ServedModel& model, const std::vector<int32_t>& prompt) {
  const int64_t most = model.engine.session_options.max_ctx;
  if (most > 0 && std::ssize(prompt) > most)
    throw ApiError(400,
                   fmt::format("this model's maximum context length is {} tokens, and the prompt has {}",
                               most, prompt.size()),
                   "invalid_request_error", "context_length_exceeded");
}

void add_texts(const ServedModel& model, Asked& asked, Choice choice, int64_t n, const AnswerOptions& options,
               const SequenceOptions& sequence) {
  if (choice.prompt.empty()) throw ApiError(400, "prompt: no token; give a text or token ids");
  check_room(model, choice.prompt);
  if (std::ssize(asked.choices) + n > kMostTexts)
    throw ApiError(400, fmt::format("at most {} texts per request", kMostTexts));
  for (int64_t i = 0; i < n; ++i) {
    ServedText& text = asked.texts->texts.emplace_back();
    text.request.tokens = choice.prompt;
    text.request.sequence_options = sequence;
    text.options = options;
    text.options.generate.sampler.seed += asked.choices.size();
    asked.choices.push_back(choice);
  }
}

std::vector<int32_t> ids_of(const ServedModel& model, const nlohmann::json& list, const JsonFields& body,
                            const char* key) {
  const int64_t size = model.engine.model.spec.vocab_size;
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= size)
      body.fail(key, fmt::format("{} is no token id; use integers from 0 to {}", id.dump(), size - 1));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// A text, a list of ids, or a list of either.
std::vector<Choice> read_prompts(const ServedModel& model, const JsonFields& body, bool add_special) {
  const nlohmann::json* prompt = body.find("prompt");
  if (prompt == nullptr) body.fail("prompt", "missing; give a text or token ids");
  const Tokenizer& tokenizer = *model.engine.tokenizer;
  const auto read = [&](const nlohmann::json& one) -> Choice {
    if (one.is_array()) {
      std::vector<int32_t> ids = ids_of(model, one, body, "prompt");
      std::string text = tokenizer.decode(ids);
      return {std::move(ids), std::move(text)};
    }
    if (!one.is_string()) body.fail("prompt", "expected a text, token ids, or a list of either");
    auto text = one.get<std::string>();
    return {encode_after({}, tokenizer, text, add_special && tokenizer.adds_bos()), text};
  };
  if (prompt->is_string() || (prompt->is_array() && !prompt->empty() && prompt->front().is_number()))
    return {read(*prompt)};
  if (!prompt->is_array()) body.fail("prompt", "expected a text, token ids, or a list of either");
  std::vector<Choice> prompts;
  for (const nlohmann::json& one : *prompt) prompts.push_back(read(one));
  if (prompts.empty()) body.fail("prompt", "empty; give a text or token ids");
  return prompts;
}

// Scores the prompt's tokens from their logits, and the most probable end of text after it.
void score_prompt(Choice& choice, ServedText& text, Backend& backend, int64_t top,
                  const std::vector<int32_t>& eos_ids) {
  text.request.logits_from = 0;
  text.request.on_logits = [&choice, &backend, top, &eos_ids](int64_t first, const Matrix& logits) {
    for (int64_t row = 0; row < logits.rows; ++row) {
      const Logprobs scores(backend, logits.row_range(row, 1), top);
      const auto after = static_cast<size_t>(first + row + 1);
      choice.prompt_scores.resize(std::min(after, choice.prompt.size() - 1));
      if (after < choice.prompt.size()) {
        choice.prompt_scores[after - 1] = scores.of(choice.prompt[after]);
        continue;
      }
      for (const int32_t eos : eos_ids) {
        TokenScore score = scores.of(eos);
        if (choice.next && choice.next->logprob >= score.logprob) continue;
        choice.next = std::move(score), choice.next_token = eos;
      }
    }
  };
}

// Texts, null, and lists of texts as content; developer is system.
Json read_messages(const nlohmann::json& given) {
  if (!given.is_array() || given.empty()) throw ApiError(400, "messages: expected a list with a message");
  Json messages = Json::parse(given.dump());
  for (Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw ApiError(400, "messages: each needs a role");
    if (message["role"] == "developer") message["role"] = "system";
    Json& content = message["content"];
    if (content.is_null()) content = "";
    if (content.is_string()) continue;
    if (!content.is_array()) throw ApiError(400, "messages: content is a text or a list of parts");
    std::string text;
    for (const Json& part : content) {
      if (!part.is_object() || part.value("type", "") != "text" || !part.contains("text") ||
          !part["text"].is_string())
        throw ApiError(400, "messages: only parts of type text are supported");
      text += part["text"].get<std::string>();
    }
    content = text;
  }
  return messages;
}

// The rendered messages; a last message of the assistant is continued.
std::string render(const ChatTemplate& chat, const Json& messages, const Json& variables) {
  if (messages.back()["role"] != "assistant") return chat.render(messages, true, variables);
  const std::string text = chat.render(messages, false, variables);
  auto last = messages.back()["content"].get<std::string>();
  last.erase(last.find_last_not_of(" \t\r\n") + 1);
  const size_t at = text.rfind(last);
  if (last.empty() || at == std::string::npos)
    throw ApiError(400,
                   "messages: the chat template changes the last message, so that it cannot be continued");
  return text.substr(0, at + last.size());
}

nlohmann::json parse_body(std::string_view body) { return parse_json_object(body, "body"); }

JsonFields fields_of(const nlohmann::json& object) { return {object, "body", "", JsonFields::with_key}; }

}  // namespace

Json max_model_len(const ServedModel& model) {
  const SessionOptions& session = model.engine.session_options;
  const int64_t length = session.max_ctx > 0 ? session.max_ctx : session.rope->max_position_embeddings;
  return length > 0 ? Json(length) : Json(nullptr);
}

std::shared_ptr<Asked> parse_completion(const ServedModel& model, std::string_view text) {
  const nlohmann::json object = parse_body(text);
  const JsonFields body = fields_of(object);
  auto asked = std::make_shared<Asked>();
  asked->id = new_id("cmpl");
  AnswerOptions options;
  options.generate.max_new_tokens = body.integer("max_tokens", 0, int64_t{1} << 40).value_or(16);
  SequenceOptions sequence;
  const int64_t n = read_settings(model, body, *asked, options, sequence);
  asked->echo = body.boolean("echo").value_or(false);
  asked->logprobs = body.integer("logprobs", 0, kMostTop);
  options.generate.logprobs = asked->logprobs;
  const bool add_special = body.boolean("add_special_tokens").value_or(true);
  std::vector<Choice> prompts = read_prompts(model, body, add_special);
  refuse_unread(body);
  if (asked->echo && asked->stream) body.fail("echo", "not supported with stream; leave one out");
  for (Choice& prompt : prompts) add_texts(model, *asked, std::move(prompt), n, options, sequence);
  if (asked->echo && asked->logprobs)
    for (size_t i = 0; i < asked->choices.size(); ++i)
      score_prompt(asked->choices[i], asked->texts->texts[i], *model.engine.backend, *asked->logprobs,
                   model.eos_ids);
  return asked;
}

std::shared_ptr<Asked> parse_chat(const ServedModel& model, std::string_view text) {
  if (!model.engine.chat) throw ApiError(400, "the model has no chat template; use /v1/completions");
  const nlohmann::json object = parse_body(text);
  const JsonFields body = fields_of(object);
  auto asked = std::make_shared<Asked>();
  asked->chat = true;
  asked->id = new_id("chatcmpl");
  AnswerOptions options;
  auto most = body.integer("max_completion_tokens", 0, int64_t{1} << 40);
  if (const auto older = body.integer("max_tokens", 0, int64_t{1} << 40); !most) most = older;
  SequenceOptions sequence;
  const int64_t n = read_settings(model, body, *asked, options, sequence);
  const int64_t top = body.integer("top_logprobs", 0, kMostTop).value_or(0);
  if (body.boolean("logprobs").value_or(false)) asked->logprobs = top;
  options.generate.logprobs = asked->logprobs;
  refuse_set(body, "tool_choice",
             body.find("tool_choice") && *body.find("tool_choice") == "none" ? "none" : "auto");
  const nlohmann::json* given = body.find("messages");
  if (given == nullptr) body.fail("messages", "missing; give a list of messages");
  const Json messages = read_messages(*given);
  Json variables = Json::object();
  if (const nlohmann::json* more = body.find("chat_template_kwargs"); more != nullptr) {
    if (!more->is_object()) body.fail("chat_template_kwargs", "expected an object");
    variables = Json::parse(more->dump());
  }
  if (const nlohmann::json* tools = body.find("tools"); is_set(tools))
    variables["tools"] = Json::parse(tools->dump());
  refuse_unread(body);
  const std::string prompt = render(*model.engine.chat, messages, variables);
  if (variables.contains("tools")) {
    Json without = variables;
    without.erase("tools");
    if (render(*model.engine.chat, messages, without) == prompt)
      body.fail("tools", "the model's chat template does not read them; leave it out");
  }
  Choice choice{model.engine.tokenizer->encode(prompt, false), ""};
  const int64_t room = model.engine.session_options.max_ctx;
  options.generate.max_new_tokens = most.value_or(room > 0 ? room : 4096);
  add_texts(model, *asked, std::move(choice), n, options, sequence);
  for (ServedText& one : asked->texts->texts) one.continues = messages.back()["role"] == "assistant";
  return asked;
}

Json tokenize_json(const ServedModel& model, std::string_view text) {
  const nlohmann::json object = parse_body(text);
  const JsonFields body = fields_of(object);
  const Tokenizer& tokenizer = *model.engine.tokenizer;
  const bool add_special = body.boolean("add_special_tokens").value_or(true);
  const auto tokens =
      encode_after({}, tokenizer, body.need_string("prompt"), add_special && tokenizer.adds_bos());
  refuse_unread(body);
  return {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", max_model_len(model)}};
}

Json detokenize_json(const ServedModel& model, std::string_view text) {
  const nlohmann::json object = parse_body(text);
  const JsonFields body = fields_of(object);
  const nlohmann::json* tokens = body.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) body.fail("tokens", "expected a list of token ids");
  refuse_unread(body);
  return {{"prompt", model.engine.tokenizer->decode(ids_of(model, *tokens, body, "tokens"), false)}};
}

Json tokenizer_info(const ServedModel& model) {
  const auto& special = model.engine.tokenizer->special_tokens();
  Json json;
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto found = special.find(key);
    json[key] = found == special.end() ? Json(nullptr) : Json(found->second);
  }
  return json;
}

}  // namespace lariat
