#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/logprobs.h"
#include "models/io/json_fields.h"

// For score and generate --prompts: a JSON line per input line.
namespace lariat {

struct LineWork {
  size_t at_once;                                               // lines per batch
  std::string_view keys;                                        // allowed keys besides "id"
  std::function<void(const JsonFields& line)> read;             // throws Error to refuse a line
  std::function<std::vector<nlohmann::ordered_json>()> answer;  // to lines read since; throws Interrupted
  std::function<std::string(int64_t lines)> summary;
};

// Answers each line of a JSONL file ("-": standard input; blank lines are skipped) with {"line", ...} and the
// line's "id" on stdout. For a line with unknown keys, or refused by `read`, prints an error and answers
// {"line", "error"}. Throws Error at the end for refused lines, no lines, or Ctrl-C.
void answer_lines(const std::filesystem::path& file, bool quiet, const LineWork& work);

nlohmann::ordered_json to_json(const std::vector<TokenLogprob>& top);  // [{"token", "logprob"}]

}  // namespace lariat
