#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/lariat.h"
#include "kernels/error.h"
#include "tools/serve/service.h"

// Requests and answers in OpenAI's shapes (completions, chat completions), as clients send and read them.
namespace lariat {

// An error and its HTTP status.
class ApiError : public Error {
 public:
  ApiError(int with, const std::string& message, std::string of_type = "invalid_request_error",
           std::string its_code = "")
      : Error(message), status(with), type(std::move(of_type)), code(std::move(its_code)) {}
  int status;
  std::string type, code;
};
nlohmann::ordered_json to_json(const ApiError& error);

struct ServedModel {
  const Engine& engine;
  std::string name;
  std::vector<int32_t> eos_ids{}, chat_eos_ids{};  // a text ends as in `lariat generate`
};

// One text of an answer.
struct Choice {
  std::vector<int32_t> prompt;
  std::string prompt_text;                  // with echo
  std::vector<TokenScore> prompt_scores{};  // of prompt[1 ...], with echo and logprobs
  std::optional<TokenScore> next{};         // best end of text after the prompt, with prompt_scores
  int32_t next_token = 0;
  size_t sent = 0;         // new tokens whose log-probabilities are in earlier chunks
  int64_t sent_chars = 0;  // of them and the prompt
};

struct Asked {
  bool chat = false, stream = false, include_usage = false, echo = false;
  std::optional<int64_t> logprobs{};  // top tokens
  std::string id, model;
  int64_t created = 0;
  std::vector<Choice> choices{};
  std::shared_ptr<ServedTexts> texts = std::make_shared<ServedTexts>();  // one per choice
};

// --ctx, else the checkpoint's length; null: no limit.
nlohmann::ordered_json max_model_len(const ServedModel& model);

// Parse a body. Throw Error for a missing or wrong value, and for a key that would change the answer and is
// not supported.
std::shared_ptr<Asked> parse_completion(const ServedModel& model, std::string_view body);
std::shared_ptr<Asked> parse_chat(const ServedModel& model, std::string_view body);

// After all texts have ended.
nlohmann::ordered_json answer_json(const ServedModel& model, Asked& asked);
// Chunks of a stream: a choice's piece of text, its end, the usage.
nlohmann::ordered_json first_chunk(const Asked& asked, size_t choice);
nlohmann::ordered_json text_chunk(const ServedModel& model, Asked& asked, size_t choice,
                                  const std::string& piece);
nlohmann::ordered_json last_chunk(const ServedModel& model, Asked& asked, size_t choice);
nlohmann::ordered_json usage_chunk(const Asked& asked);

nlohmann::ordered_json tokenize_json(const ServedModel& model, std::string_view body);
nlohmann::ordered_json detokenize_json(const ServedModel& model, std::string_view body);
nlohmann::ordered_json tokenizer_info(const ServedModel& model);

// Throws the error that ended a text as ApiError: a wrong setting as 400, all others as 500.
void check_errors(const Asked& asked);

}  // namespace lariat
