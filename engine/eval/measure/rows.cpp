#include "engine/eval/measure/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/contexts/fingerprint.h"
#include "engine/contexts/memory_check.h"
#include "engine/interrupt.h"
#include "engine/runtime/scheduler.h"

namespace lariat {
namespace {

constexpr int64_t kReserved[] = {30, 32, 50, 120, 128};  // RULER's tokens_to_generate
constexpr size_t kMostChoices = 26;

std::string letter(size_t index) { return {static_cast<char>('A' + index)}; }

std::string_view first_of(const JsonFields& line, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (line.has(key)) return key;
  }
  line.fail(*keys.begin(), fmt::format("missing; give one of {}", fmt::join(keys, ", ")));
}

// A base model continues with further questions.
std::string after_colon(const std::string& answer) {
  const size_t begin = answer.find_first_not_of(" \n");
  return "Answer:" + answer.substr(0, answer.find('\n', begin));
}

// A question with choices, as in MMLU.
void add_choices(const JsonFields& line, std::string& question, BenchmarkRow& row) {
  const auto choices = line.strings("choices");
  if (!choices) return;
  if (choices->empty() || choices->size() > kMostChoices)
    line.fail("choices", fmt::format("expected 1 to {} texts", kMostChoices));
  for (size_t i = 0; i < choices->size(); ++i) question += fmt::format("\n{}. {}", letter(i), (*choices)[i]);
  question += "\nAnswer:";
  row.lettered = true;
  const nlohmann::json* const answer = line.find("answer");
  if (answer != nullptr && answer->is_number()) {
    row.references = {letter(
        static_cast<size_t>(line.need_integer("answer", 0, static_cast<int64_t>(choices->size()) - 1)))};
  }
}

void add_references(const JsonFields& line, Metric metric, BenchmarkRow& row) {
  if (row.references.empty()) {
    const auto key = first_of(line, {"outputs", "expected_answer", "answer", "answer_nodes"});
    row.references = line.find(key)->is_string() ? std::vector{line.need_string(key)} : *line.strings(key);
    if (row.references.empty() && metric != Metric::kF1) line.fail(key, "no reference; give at least one");
  }
  if (metric == Metric::kMrcr)
    row.references = {row.references.front(), line.need_string("random_string_to_prepend")};
}

}  // namespace

BenchmarkRow benchmark_row(const JsonFields& line, const RowAnswer& id, const TextCodec& codec,
                           const Tokenizer& tokenizer, const RowOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto own = line.integer("max_new_tokens", 1, kMost);
  BenchmarkRow row{.id = id, .max_new_tokens = options.max_new_tokens.value_or(own.value_or(kDefaultTokens))};
  std::string question = line.need_string(first_of(line, {"input", "question", "prompt"}));
  const std::string prefix = line.string("answer_prefix").value_or("");
  if (const auto length = line.integer("length", 0, kMost); length && !options.max_new_tokens && !own) {
    const int64_t reserved = *length - std::ssize(tokenizer.encode(question + prefix, false));
    if (std::ranges::count(kReserved, reserved) > 0) row.max_new_tokens = reserved;
  }
  add_choices(line, question, row);
  add_references(line, options.metric, row);
  const std::string start = options.prefix ? prefix : "";
  const std::string text = codec.frame ? codec.frame(question, start) : question + start;
  if (text.empty()) line.fail("input", "empty; give a prompt");
  row.prompt = codec.encode(text);
  uint64_t sum = 0;
  add_to_checksum(sum, text);
  row.id.prompt = fmt::format("{:016x}", sum);
  row.id.tokens = std::ssize(row.prompt);
  return row;
}

double row_score(const BenchmarkRow& row, Metric metric, const std::string& answer) {
  return score_of(metric, row.lettered ? after_colon(answer) : answer, row.references);
}

bool answer_rows(Session& session, const TextCodec& codec, std::span<const BenchmarkRow> rows,
                 const RowOptions& options,
                 const std::function<void(const RowAnswer& answer, double seconds)>& on_answer) {
  return uninterrupted([&] {
    int64_t longest = kKvPage;
    for (const BenchmarkRow& row : rows)
      longest = std::max(longest, std::ssize(row.prompt) + row.max_new_tokens);
    Scheduler scheduler(session, affordable_sequences(session, longest, std::ssize(rows)));
    for (const BenchmarkRow& row : rows) {
      Request request{.tokens = row.prompt,
                      .prefix = options.common,
                      .options = {.max_new_tokens = row.max_new_tokens,
                                  .eos_ids = options.eos_ids,
                                  .allow_non_finite = true,
                                  .interrupted = options.interrupted}};
      request.on_end = [&](const Generation& result) {
        if (result.error != nullptr) return;
        if (result.stop_reason == StopReason::kInterrupted) throw Interrupted();
        RowAnswer answer = row.id;
        answer.new_tokens = std::ssize(result.tokens);
        answer.answer = codec.decode(result.tokens);
        answer.score = row_score(row, options.metric, answer.answer);
        on_answer(answer, result.prefill_seconds + result.decode_seconds);
      };
      scheduler.add(std::move(request));
    }
    stop_if(options.interrupted);
    scheduler.run(options.on_prefill);
  });
}

}  // namespace lariat
