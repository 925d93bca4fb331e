#include "engine/eval/tasks/rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/eval/tasks/prompts.h"

namespace lariat {
namespace {

constexpr std::string_view kTasks[] = {"niah_single_1", "niah_multikey_2", "niah_multikey_3",
                                       "vt",            "cwe",             "fwe"};
constexpr std::string_view kEssayTasks[] = {"niah_single_2", "niah_single_3", "niah_multikey_1",
                                            "niah_multivalue", "niah_multiquery"};
constexpr int64_t kMostTries = 10000;  // at the smallest size; a demo's cwe of 1024 tokens needs 398 for 3 rows

// A task whose number of lines or words is searched.
struct SizedTask {
  std::string name;  // in errors
  int64_t max, answer_tokens, step;
  std::function<TaskPrompt(int64_t size)> row, trial;
  int64_t trial_tokens = 0;  // of an example, which rows have and trials lack
  bool words = false;        // cwe: other bounds of the search
};

struct SizedRow {
  TaskPrompt prompt;
  int64_t tokens;  // with the answer
};

struct Rows {
  RulerOptions options;
  TaskRandom random;
  WordPairs pairs{};
  std::vector<std::string> words{};  // cwe
  std::optional<TaskPrompt> example{};  // vt
  SizedTask sized{};
  int64_t size = 0, index = 0, redrawn = 0;

  int64_t tokens(const TaskPrompt& prompt) const { return options.tokens(prompt.text()); }
};

[[noreturn]] void refuse_length(const std::string& name, int64_t max) {
  throw Error(fmt::format("{}: no row of this tokenizer fits {} tokens, where RULER's script never ends; use "
                          "longer lengths",
                          name, max));
}

// Largest size whose trial fits; the step if none does.
int64_t fitting_size(const Rows& rows, const SizedTask& task) {
  const int64_t first = task.words ? 4096 : task.step;
  const auto max = static_cast<double>(task.max);
  const double per_unit = static_cast<double>(rows.tokens(task.trial(first))) / static_cast<double>(first);
  // Python's max // per_unit
  const double whole = std::round((max - std::fmod(max, per_unit)) / per_unit);
  int64_t low = task.step, best = task.step;
  int64_t high = std::max(task.words ? static_cast<int64_t>(whole) * 2 : static_cast<int64_t>(max / per_unit * 3),
                          2 * task.step);
  while (low <= high) {
    const int64_t middle = (low + high) / 2;
    if (rows.tokens(task.trial(middle)) + task.trial_tokens + task.answer_tokens <= task.max) {
      best = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

// A row that is too long loses a step until it has at most one; from then on only other draws help.
SizedRow fitting_row(Rows& rows, const SizedTask& task, int64_t size) {
  for (int64_t tries = 0; tries < kMostTries; ++rows.redrawn) {
    try {
      TaskPrompt prompt = task.row(size);
      const int64_t tokens = rows.tokens(prompt) + task.answer_tokens;
      if (tokens <= task.max) return {std::move(prompt), tokens};
    } catch (const CannotDraw&) {
    }
    size > task.step ? size -= task.step : ++tries;
  }
  refuse_length(task.name, task.max);
}

SizedTask niah_task(Rows& rows) {
  const std::string_view name = rows.options.task;
  const bool uuids = name == "niah_multikey_3";
  const NeedleTypes types{uuids ? Needle::kUuid : Needle::kWord, uuids ? Needle::kUuid : Needle::kNumber,
                          name != "niah_single_1"};
  const auto draw = [&rows, types](int64_t lines) {
    return niah_prompt(rows.random, rows.pairs, types, lines);
  };
  return {std::string(name), rows.options.length, 128, rows.options.length < 4096 ? 5 : 25, draw, draw};
}

SizedTask tracking_task(Rows& rows) {
  const auto draw_example = [&rows](int64_t lines) { return tracking_prompt(rows.random, true, lines); };
  const SizedTask example{"vt's example", 500, 0, 5, draw_example, draw_example};
  rows.example = fitting_row(rows, example, fitting_size(rows, example)).prompt;
  const auto trial = [&rows](int64_t lines) { return tracking_prompt(rows.random, false, lines); };
  const auto row = [&rows](int64_t lines) {
    TaskPrompt prompt = tracking_prompt(rows.random, false, lines);
    prompt.input = renamed_example(rows.random, *rows.example) + "\n" + prompt.input;
    return prompt;
  };
  return {"vt",  rows.options.length, 30, rows.options.length < 4096 ? 5 : 10, row,
          trial, rows.options.tokens(example_text(*rows.example))};
}

SizedTask common_words_task(Rows& rows) {
  rows.words = all_words();
  rows.random.fresh().shuffle(rows.words);
  const auto draw = [&rows](int64_t words) {
    return common_words_prompt(rows.random, rows.words, rows.options.length < 4096, words);
  };
  return {"cwe", rows.options.length, 120, 10, draw, draw, 0, true};
}

// fwe: the tokens of the answer are taken off the length, and only the number of words shrinks.
constexpr int64_t kCodedAnswer = 50, kTokensPerWord = 50, kFewestWords = 4;

int64_t coded_size(Rows& rows) {
  const int64_t max = rows.options.length - kCodedAnswer, step = max / 32;
  if (max / kTokensPerWord < kFewestWords) refuse_length("fwe", rows.options.length);
  const auto vocabulary = coded_vocabulary(rows.random, max / kTokensPerWord);
  int64_t size = max / 6;
  while (rows.tokens(coded_prompt(rows.random, vocabulary, size)) < max) size += step;
  return size - step;
}

SizedRow coded_row(Rows& rows) {
  const int64_t max = rows.options.length - kCodedAnswer, step = max / 32;
  const auto vocabulary = coded_vocabulary(rows.random, max / kTokensPerWord);
  for (int64_t size = rows.size; size > 0; size -= step) {
    TaskPrompt prompt = coded_prompt(rows.random, vocabulary, size);
    const int64_t tokens = rows.tokens(prompt);
    if (tokens <= max) return {std::move(prompt), tokens + kCodedAnswer};
    ++rows.redrawn;
  }
  refuse_length("fwe", rows.options.length);
}

// As json.dump: ASCII only.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', true); }

int64_t code_points(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::string next_line(Rows& rows) {
  const bool coded = rows.options.task == "fwe", niah = rows.options.task.starts_with("niah");
  const auto [prompt, tokens] = coded ? coded_row(rows) : fitting_row(rows, rows.sized, rows.size);
  std::vector<std::string> answers;
  for (const std::string& answer : prompt.answers) answers.push_back(quoted(answer));
  const std::string_view before = std::string_view(prompt.input).substr(0, prompt.input.find(prompt.answers[0]));
  const int64_t index = niah ? code_points(before) : rows.index++;
  const std::string place = niah ? fmt::format(", \"token_position_answer\": {}", rows.options.tokens(before)) : "";
  return fmt::format(
      R"({{"index": {}, "input": {}, "outputs": [{}], "length": {}, "length_w_model_temp": {}, "answer_prefix": {}{}}})",
      index, quoted(prompt.input), fmt::join(answers, ", "), tokens, tokens, quoted(prompt.prefix), place);
}

}  // namespace

std::span<const std::string_view> ruler_tasks() { return kTasks; }

void check_ruler_task(std::string_view name) {
  if (std::ranges::find(kTasks, name) != std::end(kTasks)) return;
  const bool essays = std::ranges::find(kEssayTasks, name) != std::end(kEssayTasks);
  const std::string_view why = essays                          ? "its text are downloaded essays"
                               : name == "qa_1" || name == "qa_2" ? "its questions are a download"
                                                                  : "unknown";
  throw UsageError(fmt::format("`task` {}: {}; use {} or all", name, why, fmt::join(kTasks, ", ")));
}

RulerRows ruler_rows(const RulerOptions& options) {
  check_ruler_task(options.task);
  const auto rows = std::make_shared<Rows>(Rows{options, TaskRandom(options.seed)});
  if (options.task == "fwe") {
    rows->size = coded_size(*rows);
  } else {
    rows->sized = options.task == "vt"    ? tracking_task(*rows)
                  : options.task == "cwe" ? common_words_task(*rows)
                                          : niah_task(*rows);
    rows->size = fitting_size(*rows, rows->sized);
  }
  rows->redrawn = 0;
  return {[rows] { return next_line(*rows); }, [rows] { return rows->redrawn; }};
}

}  // namespace lariat
