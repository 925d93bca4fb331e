#include "engine/eval/tasks/sized.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lariat {
namespace {

constexpr int64_t kMostTries = 10000;  // measured: cwe in tokens of one letter needs hundreds
constexpr size_t kDepths = 40;         // of essay hay

// A full stop, with closing quotes.
bool ends_sentence(std::string_view word) {
  const size_t last = word.find_last_not_of("\"')\xE2\x80\x99\x9D");
  return last != word.npos && std::string_view(".!?").find(word[last]) != std::string_view::npos;
}

}  // namespace

int64_t fitting_size(TaskState& state, const SizedTask& task) {
  const bool words = task.name == "cwe";
  const int64_t first = words ? 4096 : task.step;
  const auto max = static_cast<double>(task.max);
  const double unit =
      static_cast<double>(state.tokens(task.trial(state, first))) / static_cast<double>(first);
  const double most =
      words ? std::round((max - std::fmod(max, unit)) / unit) * 2 : max / unit * 3;  // max // unit
  int64_t low = task.step, high = std::max(static_cast<int64_t>(most), 2 * task.step), best = task.step;
  while (low <= high) {
    const int64_t middle = (low + high) / 2;
    const bool fits = state.tokens(task.trial(state, middle)) + task.example + task.answer <= task.max;
    if (fits) best = middle;
    (fits ? low : high) = fits ? middle + 1 : middle - 1;
  }
  return best;
}

TaskRow fitting_row(TaskState& state, const SizedTask& task, int64_t size) {
  for (int64_t tries = 0; tries < kMostTries;) {
    try {
      const TaskPrompt prompt = task.row(state, size);
      const int64_t length = state.tokens(prompt) + task.answer;
      if (length <= task.max) return {prompt, length};
    } catch (const CannotDraw&) {  // counts as too long
    }
    size > task.step ? size -= task.step : ++tries;
  }
  refuse_length(task.name, task.max);
}

// RULER's scripts never end here.
void refuse_length(std::string_view task, int64_t length) {
  throw Error(
      fmt::format("{}: no row fits {} tokens with this tokenizer; use longer `lengths`", task, length));
}

std::string essay_hay(TaskState& state, int64_t words, const std::vector<std::string>& needles) {
  std::vector<std::string> sentences(1);
  for (size_t i = 0; i < static_cast<size_t>(words); ++i) {
    const std::string& word = state.words[i % state.words.size()];
    if (i > 0 && ends_sentence(state.words[(i - 1) % state.words.size()])) sentences.emplace_back();
    sentences.back() += (sentences.back().empty() ? "" : " ") + word;
  }
  std::vector<size_t> places;
  for (const size_t depth : state.python.sample(kDepths, needles.size())) {
    const double percent = std::round(100.0 * static_cast<double>(depth) / (kDepths - 1));
    places.push_back(static_cast<size_t>(static_cast<double>(sentences.size()) * (percent / 100)));
  }
  std::ranges::sort(places);
  std::vector<std::string> parts;
  size_t before = 0;
  for (size_t i = 0; i <= needles.size(); ++i) {
    const size_t end = i < needles.size() ? places[i] : sentences.size();
    parts.push_back(fmt::format("{}", fmt::join(sentences.begin() + static_cast<std::ptrdiff_t>(before),
                                                sentences.begin() + static_cast<std::ptrdiff_t>(end), " ")));
    if (i < needles.size()) parts.push_back(needles[i]);
    before = end;
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace lariat
