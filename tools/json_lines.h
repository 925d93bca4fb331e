#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/logprobs.h"
#include "kernels/error.h"
#include "models/io/json_fields.h"

// For score, ask and generate --prompts: files of JSON lines.
namespace lariat {

// Passes each line of a JSONL file ("-": standard input) that is not blank to `read`, which returns false to
// stop. Throws Error, or Interrupted on Ctrl-C.
void for_lines(const std::filesystem::path& file,
               const std::function<bool(int64_t number, const std::string& line)>& read);
// Prints and returns the reason why a line is refused; place: "FILE: line N".
std::string say_refusal(const Error& error, const std::string& place);

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
