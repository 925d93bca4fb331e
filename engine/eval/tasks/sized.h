#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/eval/tasks/random.h"
#include "engine/eval/tasks/words.h"
#include "kernels/error.h"

namespace lariat {

struct TaskOptions {
  std::string_view task;
  int64_t length;  // tokens of a row and its answer
  uint32_t seed;
  std::function<int64_t(std::string_view)> tokens;  // counts without special tokens; may throw
  std::string text{};                               // of essay_* and facts_*
};

struct TaskPrompt {
  std::string input, prefix;  // prefix: start of the answer
  std::vector<std::string> answers;
  std::string text() const { return input + prefix; }
};
struct TaskRow {
  TaskPrompt prompt;
  int64_t length;
};

// A draw that ends RULER's script or, among rows, makes it draw again.
class CannotDraw : public Error {
  using Error::Error;
};

struct TaskState {
  TaskOptions options;
  PythonRandom python{options.seed};
  std::mt19937 numpy{options.seed};
  bool is_short = options.length < 4096;
  WordPairs pairs{};
  std::vector<std::string> words{};  // cwe; of the text
  TaskPrompt example{};              // vt

  int64_t tokens(const TaskPrompt& prompt) const { return options.tokens(prompt.text()); }
  template <class T>
  void shuffle(std::vector<T>& items) const {  // each shuffle has its own generator
    PythonRandom(options.seed).shuffle(items);
  }
};

// A task whose number of lines, words or pairs is searched.
struct SizedTask {
  std::string_view name;
  int64_t max, answer, step;  // tokens of a row and its answer; of the answer
  std::function<TaskPrompt(TaskState&, int64_t size)> trial, row;
  int64_t example = 0;  // tokens that trials lack
};

// The largest size whose trial fits, else the step.
int64_t fitting_size(TaskState& state, const SizedTask& task);
// A row that is too long loses a step, down to one step or less; then only other draws can help.
TaskRow fitting_row(TaskState& state, const SizedTask& task, int64_t size);
[[noreturn]] void refuse_length(std::string_view task, int64_t length);

// Tasks of the same form as a benchmark's, whose rows need downloads.
struct OwnTask {
  std::string_view name, form;
  int64_t answer, step;  // tokens of an answer; lines, words or pairs
  TaskPrompt (*prompt)(TaskState& state, int64_t size);
  bool reads_text = false;
};
extern const std::vector<OwnTask> kOwnTasks;

// The text's first words, repeated if it is short, with needles between its sentences: RULER's essay hay,
// but for the rule that ends a sentence.
std::string essay_hay(TaskState& state, int64_t words, const std::vector<std::string>& needles);

}  // namespace lariat
