#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/eval/tasks/random.h"
#include "engine/eval/tasks/words.h"
#include "kernels/error.h"

// Prompts of RULER's tasks (github.com/NVIDIA/RULER at c3f5e3b, scripts/data/synthetic). Their texts are
// RULER's (Apache-2.0), and each function draws in the order of its script.
namespace lariat {

// RULER's script fails on this draw; while rows are made, it then draws again.
class CannotDraw : public Error {
  using Error::Error;
};

struct TaskRandom {
  explicit TaskRandom(uint32_t seed) : python(seed), numpy(seed), seed_(seed) {}
  PythonRandom python;
  std::mt19937 numpy;
  PythonRandom fresh() const { return PythonRandom(seed_); }  // a new Random(seed) for every shuffle

 private:
  uint32_t seed_;
};

struct TaskPrompt {
  std::string input, prefix;  // prefix: start of the answer
  std::vector<std::string> answers;
  std::string text() const { return input + prefix; }
};

enum class Needle { kWord, kNumber, kUuid };
struct NeedleTypes {
  Needle key, value;  // value: no word
  bool needle_hay;    // false: lines of noise
};
TaskPrompt niah_prompt(TaskRandom& random, const WordPairs& words, const NeedleTypes& types, int64_t lines);

// A prompt over a chain of five variables. An example has names of three letters and the value 12345.
TaskPrompt tracking_prompt(TaskRandom& random, bool example, int64_t lines);
// The whole text of an example, with its answers; the second with other names and another value.
std::string example_text(const TaskPrompt& example);
std::string renamed_example(TaskRandom& random, const TaskPrompt& example);

// `words`: all_words(), shuffled. sparse: the repetitions of lengths below 4096.
TaskPrompt common_words_prompt(TaskRandom& random, const std::vector<std::string>& words, bool sparse,
                               int64_t count);

// Six-letter words; the first is drawn as dots.
std::vector<std::string> coded_vocabulary(TaskRandom& random, int64_t size);
TaskPrompt coded_prompt(const TaskRandom& random, const std::vector<std::string>& vocabulary, int64_t count);

}  // namespace lariat
