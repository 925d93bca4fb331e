#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/answer_score.h"
#include "engine/eval/measure/passkey.h"
#include "engine/eval/measurement.h"
#include "models/io/json_fields.h"

// Rows of a benchmark. The prompt is the first of "input", "question" and "prompt", then "answer_prefix". The
// references are the first of "outputs", "expected_answer", "answer" and "answer_nodes": a string or a list.
// "choices" follow the question as "A. ...", and the answer is a letter or an index.
namespace lariat {

struct BenchmarkRow {
  RowAnswer id{};  // file, line, checksum and number of tokens of the prompt
  std::vector<int32_t> prompt{};
  std::vector<std::string> references{};
  int64_t max_new_tokens = 0;
  bool lettered = false;  // has choices; the answer's first line follows "Answer:"
};

struct RowOptions {
  Metric metric = Metric::kAll;
  bool prefix = true;
  // Unset: the row's "max_new_tokens", or the tokens that RULER reserves: "length" counts the prompt and
  // these. Without a length, or with another tokenizer's, kDefaultTokens.
  std::optional<int64_t> max_new_tokens{};
  std::vector<int32_t> eos_ids{};
  const std::atomic<bool>* interrupted = nullptr;
  const Sequence* common = nullptr;     // caches a prefix of all prompts
  Session::ProgressFn on_prefill = {};  // prefilled tokens
};
inline constexpr int64_t kDefaultTokens = 128;

// id: file and line. Throws Error for missing or wrong members.
BenchmarkRow benchmark_row(const JsonFields& line, const RowAnswer& id, const TextCodec& codec,
                           const Tokenizer& tokenizer, const RowOptions& options);

// The metric's score of a row's answer.
double row_score(const BenchmarkRow& row, Metric metric, const std::string& answer);

// Greedy answers to rows that run together. Returns false if interrupted.
bool answer_rows(Session& session, const TextCodec& codec, std::span<const BenchmarkRow> rows,
                 const RowOptions& options,
                 const std::function<void(const RowAnswer& answer, double seconds)>& on_answer);

}  // namespace lariat
