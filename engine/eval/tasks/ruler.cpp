#include "engine/eval/tasks/ruler.h"

#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/eval/tasks/random.h"
#include "engine/eval/tasks/words.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
constexpr const char* kNiah =
    R"(A special magic {0} is hidden within the following text. Make sure to memorize it. I will quiz you about the {0} afterwards.
{1}
What is the special magic {0} for {2} mentioned in the provided text?)";
constexpr const char* kTracking =
    R"(Memorize and track the chain(s) of variable assignment hidden in the following text.

{}
Question: Find all variables that are assigned the value {} in the text above.)";
constexpr const char* kTrackingPrefix =
    R"( Answer: According to the chain(s) of variable assignment in the text above, {} variables are assigned the value {}, they are: )";
constexpr const char* kCommonWords =
    R"(Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that appear most often.
{}
Question: What are the 10 most common words in the above list?)";
constexpr const char* kCoded =
    R"(Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared coded words. {}
Question: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently appeared words in the above coded text?)";
constexpr const char* kExampleValue = "12345";  // vt
constexpr size_t kChain = 5;                    // vt: variables
constexpr size_t kCommon = 10;                  // cwe: words to find
constexpr int64_t kMostTries = 10000;           // measured: cwe in tokens of one letter needs hundreds

// A draw that ends RULER's script or, among rows, makes it draw again.
class CannotDraw : public Error {
  using Error::Error;
};

struct Prompt {
  std::string input, prefix;  // prefix: start of the answer
  Words answers;
  std::string text() const { return input + prefix; }
};

struct State {
  RulerOptions options;
  PythonRandom python{options.seed};
  std::mt19937 numpy{options.seed};
  bool is_short = options.length < 4096;
  int64_t index = 0;  // of the next row
  WordPairs pairs{};
  Words words{};     // cwe
  Prompt example{};  // vt

  int64_t tokens(const Prompt& prompt) const { return options.tokens(prompt.text()); }
  template <class T>
  void shuffle(std::vector<T>& items) const {  // each shuffle has its own generator
    PythonRandom(options.seed).shuffle(items);
  }
  std::string value() { return std::to_string(numpy_randint(numpy, 10000, 99999)); }
};

Prompt niah_prompt(State& state, int64_t lines) {
  const bool noise = state.options.task == "niah_single_1", uuids = state.options.task == "niah_multikey_3";
  const std::string_view type = uuids ? "uuid" : "number";
  const auto key = [&] {
    return uuids ? state.python.uuid() : state.pairs.at(state.python.below(state.pairs.size()));
  };
  const auto value = [&] {
    return uuids ? state.python.uuid() : std::to_string(1000000 + state.python.below(9000000));
  };
  const auto needle = [&](const std::string& of, const std::string& is) {
    return fmt::format("One of the special magic {}s for {} is: {}.", type, of, is);
  };
  const std::string asked = key(), answer = value();
  Words hay(static_cast<size_t>(lines), kNoise);
  for (std::string& line : hay) {
    if (noise) break;
    const std::string other = key();
    line = needle(other, value());
  }
  const size_t place = state.python.sample(hay.size(), 1)[0];
  hay.insert(hay.begin() + static_cast<std::ptrdiff_t>(place), needle(asked, answer));
  state.python.sample(1, 1);  // among the keys
  return {fmt::format(kNiah, type, fmt::join(hay, "\n"), asked),
          fmt::format(" The special magic {} for {} mentioned in the provided text is", type, asked),
          {answer}};
}

Prompt tracking_prompt(State& state, bool example, int64_t lines) {
  Words names;
  while (names.size() < kChain) names.push_back(state.python.letters('A', example ? 3 : 5));
  std::set<std::string> distinct(names.begin(), names.end());
  const bool twins = distinct.size() < kChain;
  while (distinct.size() < kChain) distinct.insert(state.python.letters('A', example ? 3 : 5));
  const std::string value = example ? kExampleValue : state.value();
  if (twins && !example) state.value();  // of a second chain
  if (twins)
    throw CannotDraw("vt: two variables get one name, which RULER's script fails on; use another `seed`");
  if (lines < static_cast<int64_t>(kChain)) throw CannotDraw("vt: too few lines");
  Words hay(static_cast<size_t>(lines), kNoise);
  std::vector<size_t> places = state.python.sample(hay.size(), kChain);
  std::ranges::sort(places);
  for (size_t i = 0; i < kChain; ++i) {
    hay.insert(hay.begin() + static_cast<std::ptrdiff_t>(places[i] + i),
               i == 0 ? fmt::format("VAR {} = {}", names[0], value)
                      : fmt::format("VAR {} = VAR {} ", names[i], names[i - 1]));
  }
  return {fmt::format(kTracking, fmt::join(hay, "\n"), value), fmt::format(kTrackingPrefix, kChain, value),
          names};
}

std::string example_text(const Prompt& example) {
  return fmt::format("{} {}\n", example.text(), fmt::join(example.answers, " "));
}

// The example has other names and another value in every row.
Prompt tracking_row(State& state, int64_t lines) {
  Prompt prompt = tracking_prompt(state, false, lines);
  std::string text = example_text(state.example);
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  for (const std::string& name : state.example.answers) replace(name, state.python.letters('A', 3));
  replace(kExampleValue, state.value());
  prompt.input = text + "\n" + prompt.input;
  return prompt;
}

// "1. word 2. word"
std::string numbered(const Words& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}{}. {}", i > 0 ? " " : "", i + 1, words[i]);
  return text;
}

Prompt common_words_list(State& state, size_t count, int common_times, int other_times) {
  if (count > state.words.size()) {
    throw Error(
        fmt::format("cwe: {} tokens need a list of {} words; wonderwords has {} and RULER's longer list is "
                    "not included; use shorter `lengths`",
                    state.options.length, count, state.words.size()));
  }
  Words common, other, list;
  for (const size_t at : state.python.sample(state.words.size(), count))
    (common.size() < kCommon ? common : other).push_back(state.words[at]);
  for (int i = 0; i < common_times; ++i) list.insert(list.end(), common.begin(), common.end());
  for (int i = 0; i < other_times; ++i) list.insert(list.end(), other.begin(), other.end());
  state.shuffle(list);
  return {fmt::format(kCommonWords, numbered(list)),
          " Answer: The top 10 words that appear most often in the list are:", common};
}

Prompt common_words_prompt(State& state, int64_t count) {
  const bool few = state.is_short;
  const Prompt example = common_words_list(state, few ? 20 : 40, few ? 3 : 10, few ? 1 : 3);
  Prompt prompt = common_words_list(state, static_cast<size_t>(count), few ? 6 : 30, few ? 1 : 3);
  prompt.input = fmt::format("{} {}\n{}", example.text(), numbered(example.answers), prompt.input);
  return prompt;
}

Words coded_vocabulary(State& state, int64_t size) {
  std::set<std::string> distinct;
  while (std::ssize(distinct) < size) distinct.insert(state.python.letters('a', 6));
  Words words(distinct.begin(), distinct.end());
  state.shuffle(words);
  words[0] = "...";
  return words;
}

Prompt coded_prompt(const State& state, const Words& vocabulary, int64_t count) {
  Words coded;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto rank = static_cast<double>(i + 1);
    const double times = static_cast<double>(count) * (1 / (rank * rank)) / 1.6449340668482264;  // zeta(2)
    coded.insert(coded.end(), static_cast<size_t>(times), vocabulary[i]);
  }
  state.shuffle(coded);
  return {fmt::format(kCoded, fmt::join(coded, " ")),
          " Answer: According to the coded text above, the three most frequently appeared words are:",
          {vocabulary.begin() + 1, vocabulary.begin() + 4}};
}

// ---- sizes ----

struct Row {
  Prompt prompt;
  int64_t length;
};

[[noreturn]] void refuse(std::string_view what, int64_t length) {
  throw Error(
      fmt::format("{}: no row fits {} tokens with this tokenizer, where RULER's script never ends; use "
                  "longer `lengths`",
                  what, length));
}

// A task whose number of lines or words is searched.
struct Sized {
  std::string_view name;
  int64_t max, answer, step;  // tokens of a row and its answer; of the answer
  std::function<Prompt(State&, int64_t size)> trial, row;
  int64_t example = 0;  // tokens that trials lack
};

// The largest size whose trial fits, else the step.
int64_t fitting_size(State& state, const Sized& task) {
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

// A row that is too long loses a step, down to one step or less; then only other draws can help.
Row fitting_row(State& state, const Sized& task, int64_t size) {
  for (int64_t tries = 0; tries < kMostTries;) {
    try {
      const Prompt prompt = task.row(state, size);
      const int64_t length = state.tokens(prompt) + task.answer;
      if (length <= task.max) return {prompt, length};
    } catch (const CannotDraw&) {  // counts as too long
    }
    size > task.step ? size -= task.step : ++tries;
  }
  refuse(task.name, task.max);
}

Sized sized_task(State& state) {
  const auto& [name, length, seed, tokens] = state.options;
  if (name == "vt") {
    const auto example = [](State& s, int64_t lines) { return tracking_prompt(s, true, lines); };
    const Sized task{"vt's example", 500, 0, 5, example, example};
    state.example = fitting_row(state, task, fitting_size(state, task)).prompt;
    const auto trial = [](State& s, int64_t lines) { return tracking_prompt(s, false, lines); };
    return {
        name, length, 30, state.is_short ? 5 : 10, trial, tracking_row, tokens(example_text(state.example))};
  }
  if (name != "cwe") return {name, length, 128, state.is_short ? 5 : 25, niah_prompt, niah_prompt};
  state.words = sorted_words({kNouns, kAdjectives, kVerbs});
  state.shuffle(state.words);
  return {name, length, 120, 10, common_words_prompt, common_words_prompt};
}

// fwe reserves the answer's tokens first and keeps a row's vocabulary while the row shrinks.
std::function<Row()> coded_rows(State& state) {
  const int64_t max = state.options.length - 50, step = max / 32, size = max / 50;
  if (size < 4) refuse("fwe", state.options.length);
  const Words vocabulary = coded_vocabulary(state, size);
  int64_t longest = max / 6;
  while (longest < 16 * max && state.tokens(coded_prompt(state, vocabulary, longest)) < max) longest += step;
  return [=, &state, longest = longest - step] {
    const Words own = coded_vocabulary(state, size);
    for (int64_t count = longest; count > 0; count -= step) {
      const Prompt prompt = coded_prompt(state, own, count);
      if (const int64_t tokens = state.tokens(prompt); tokens <= max) return Row{prompt, tokens + 50};
    }
    refuse("fwe", state.options.length);
  };
}

// As Python's json.dump writes a row.
std::string json_line(State& state, const Row& row) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(-1, ' ', true); };
  const auto& [input, prefix, answers] = row.prompt;
  Words outputs;
  for (const std::string& answer : answers) outputs.push_back(quoted(answer));
  int64_t index = state.index++;
  std::string place;
  if (state.options.task.starts_with("niah")) {  // the index is the answer's place in code points
    const std::string before = input.substr(0, input.find(answers[0]));
    index = std::ranges::count_if(before, [](unsigned char c) { return (c & 0xc0) != 0x80; });
    place = fmt::format(", \"token_position_answer\": {}", state.options.tokens(before));
  }
  return fmt::format(R"({{"index": {}, "input": {}, "outputs": [{}], "length": {}, )"
                     R"("length_w_model_temp": {}, "answer_prefix": {}{}}})",
                     index, quoted(input), fmt::join(outputs, ", "), row.length, row.length, quoted(prefix),
                     place);
}

}  // namespace

std::function<std::string()> ruler_rows(const RulerOptions& options) {
  const auto state = std::make_shared<State>(State{options});
  std::function<Row()> next;
  if (options.task == "fwe") {
    next = coded_rows(*state);
  } else {
    const Sized task = sized_task(*state);
    next = [&of = *state, task, size = fitting_size(*state, task)] { return fitting_row(of, task, size); };
  }
  return [state, next] { return json_line(*state, next()); };
}

}  // namespace lariat
