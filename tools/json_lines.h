#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/logprobs.h"
#include "models/io/json_fields.h"

// What score and generate --prompts share: a JSON line for each line of a file.
namespace lariat {

struct LineWork {
  size_t at_once;         // lines
  std::string_view keys;  // allowed keys of a line, apart from "id", separated by spaces
  std::function<void(const JsonFields& line)> read;  // throws Error where a line cannot be answered
  std::function<std::vector<nlohmann::ordered_json>()> answer;  // to those read since; throws Interrupted
  std::function<std::string(int64_t lines)> summary;            // is said at the end
};

// Answers each line of a JSONL file ("-": standard input; blank ones are passed over) with a line on stdout,
// {"line", ...} and the line's "id". One that `read` refuses, or that has other keys, is said, its answer is
// {"line", "error"}, and the rest goes on. Throws Error at the very end when there was such a line, none at
// all, or Ctrl-C.
void answer_lines(const std::filesystem::path& file, bool quiet, const LineWork& work);

nlohmann::ordered_json to_json(const std::vector<TokenLogprob>& top);  // [{"token", "logprob"}]

}  // namespace lariat
