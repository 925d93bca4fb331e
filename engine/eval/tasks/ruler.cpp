#include "engine/eval/tasks/ruler.h"

#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "models/text/unicode.h"

namespace lariat {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
constexpr const char* kNiah =
    R"(Some special magic {0} are hidden within the following text. Make sure to memorize it. I will quiz you about the {0} afterwards.
{1}
What are all the special magic {0} for {2} mentioned in the provided text?)";
constexpr const char* kNiahPrefix = " The special magic {0} for {2} mentioned in the provided text are";
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

enum class NiahHay { kFiller, kNeedles, kEssay };
struct Niah {
  std::string_view name;
  NiahHay hay;
  bool uuid_keys, uuid_values;
  size_t keys, values, queries;
};
constexpr Niah kNiahs[] = {
    {"niah_single_1", NiahHay::kFiller, false, false, 1, 1, 1},
    {"niah_multikey_2", NiahHay::kNeedles, false, false, 1, 1, 1},
    {"niah_multikey_3", NiahHay::kNeedles, true, true, 1, 1, 1},
    {"essay_single_2", NiahHay::kEssay, false, false, 1, 1, 1},  // as niah_single_2
    {"essay_single_3", NiahHay::kEssay, false, true, 1, 1, 1},
    {"essay_multikey_1", NiahHay::kEssay, false, false, 4, 1, 1},
    {"essay_multivalue", NiahHay::kEssay, false, false, 1, 4, 1},
    {"essay_multiquery", NiahHay::kEssay, false, false, 1, 1, 4},
};
const Niah* niah_of(std::string_view task) {
  const auto* const found = std::ranges::find(kNiahs, task, &Niah::name);
  return found == std::end(kNiahs) ? nullptr : found;
}

std::string lines_hay(TaskState& state, const Words& needles, Words lines) {
  std::vector<size_t> places = state.python.sample(lines.size(), needles.size());
  std::ranges::sort(places, std::greater{});
  for (size_t i = 0; i < places.size(); ++i)
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(places[i]), needles[i]);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

TaskPrompt niah_prompt(TaskState& state, int64_t size) {
  const Niah& form = *niah_of(state.options.task);
  const std::string type = form.uuid_values ? "uuids" : "numbers";
  const auto key = [&] {
    return form.uuid_keys ? state.python.uuid() : state.pairs.at(state.python.below(state.pairs.size()));
  };
  const auto value = [&] {
    return form.uuid_values ? state.python.uuid() : std::to_string(1000000 + state.python.below(9000000));
  };
  const auto needle = [&](const std::string& of, const std::string& is) {
    return fmt::format("One of the special magic {} for {} is: {}.", type, of, is);
  };
  Words keys, needles, hay, asked, answers;
  std::vector<Words> values;
  while (keys.size() < std::max(form.keys, form.queries)) {
    keys.push_back(key());
    values.emplace_back();
    while (values.back().size() < form.values)
      needles.push_back(needle(keys.back(), values.back().emplace_back(value())));
  }
  state.shuffle(needles);
  while (form.hay != NiahHay::kEssay && std::ssize(hay) < size) {
    const std::string other = form.hay == NiahHay::kNeedles ? key() : "";
    hay.push_back(form.hay == NiahHay::kNeedles ? needle(other, value()) : kNoise);
  }
  const std::string text = form.hay == NiahHay::kEssay ? essay_hay(state, size, needles)
                                                       : lines_hay(state, needles, std::move(hay));
  for (const size_t at : state.python.sample(keys.size(), form.queries)) {
    asked.push_back((asked.size() + 1 == form.queries && form.queries > 1 ? "and " : "") + keys[at]);
    answers.insert(answers.end(), values[at].begin(), values[at].end());
  }
  const bool plural = form.queries * form.values > 1;
  const auto filled = [&](std::string form_text) {
    if (!plural) {
      for (const auto& [from, to] : {std::pair("Some", "A"), {"are all", "is"}, {"are", "is"}})
        form_text = replace_all(form_text, from, to);
    }
    return fmt::format(fmt::runtime(form_text), plural ? type : type.substr(0, type.size() - 1), text,
                       fmt::join(asked, ", "));
  };
  return {filled(kNiah), filled(kNiahPrefix), answers};
}

std::string variable_value(TaskState& state) {
  return std::to_string(numpy_randint(state.numpy, 10000, 99999));
}

TaskPrompt tracking_prompt(TaskState& state, bool example, int64_t lines) {
  Words names;
  while (names.size() < kChain) names.push_back(state.python.letters('A', example ? 3 : 5));
  std::set<std::string> distinct(names.begin(), names.end());
  const bool twins = distinct.size() < kChain;
  while (distinct.size() < kChain) distinct.insert(state.python.letters('A', example ? 3 : 5));
  const std::string value = example ? kExampleValue : variable_value(state);
  if (twins && !example) variable_value(state);  // of a second chain
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

std::string example_text(const TaskPrompt& example) {
  return fmt::format("{} {}\n", example.text(), fmt::join(example.answers, " "));
}

// The example has other names and another value in every row.
TaskPrompt tracking_row(TaskState& state, int64_t lines) {
  TaskPrompt prompt = tracking_prompt(state, false, lines);
  std::string text = example_text(state.example);
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  for (const std::string& name : state.example.answers) replace(name, state.python.letters('A', 3));
  replace(kExampleValue, variable_value(state));
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

TaskPrompt common_words_list(TaskState& state, size_t count, int common_times, int other_times) {
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

TaskPrompt common_words_prompt(TaskState& state, int64_t count) {
  const bool few = state.is_short;
  const TaskPrompt example = common_words_list(state, few ? 20 : 40, few ? 3 : 10, few ? 1 : 3);
  TaskPrompt prompt = common_words_list(state, static_cast<size_t>(count), few ? 6 : 30, few ? 1 : 3);
  prompt.input = fmt::format("{} {}\n{}", example.text(), numbered(example.answers), prompt.input);
  return prompt;
}

Words coded_vocabulary(TaskState& state, int64_t size) {
  std::set<std::string> distinct;
  while (std::ssize(distinct) < size) distinct.insert(state.python.letters('a', 6));
  Words words(distinct.begin(), distinct.end());
  state.shuffle(words);
  words[0] = "...";
  return words;
}

TaskPrompt coded_prompt(const TaskState& state, const Words& vocabulary, int64_t count) {
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

SizedTask sized_task(TaskState& state) {
  const auto& [name, length, seed, tokens, text] = state.options;
  if (name == "vt") {
    const auto example = [](TaskState& s, int64_t lines) { return tracking_prompt(s, true, lines); };
    const SizedTask task{"vt's example", 500, 0, 5, example, example};
    state.example = fitting_row(state, task, fitting_size(state, task)).prompt;
    const auto trial = [](TaskState& s, int64_t lines) { return tracking_prompt(s, false, lines); };
    return {
        name, length, 30, state.is_short ? 5 : 10, trial, tracking_row, tokens(example_text(state.example))};
  }
  if (name == "cwe") {
    state.words = sorted_words({kNouns, kAdjectives, kVerbs});
    state.shuffle(state.words);
    return {name, length, 120, 10, common_words_prompt, common_words_prompt};
  }
  const auto space = [](char c) { return std::string_view(" \t\r\n\f\v").find(c) != std::string_view::npos; };
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find_if(at, text.end(), space);
    if (end != at) state.words.emplace_back(at, end);
    at = std::find_if_not(end, text.end(), space);
  }
  if (const Niah* const niah = niah_of(name)) {
    const int64_t step = state.is_short ? 5 : niah->hay == NiahHay::kEssay ? 500 : 25;
    return {name, length, 128, step, niah_prompt, niah_prompt};
  }
  const OwnTask& own = *std::ranges::find(kOwnTasks, name, &OwnTask::name);
  return {name, length, own.answer, own.step, own.prompt, own.prompt};
}

// fwe reserves the answer's tokens first and keeps a row's vocabulary while the row shrinks.
std::function<TaskRow()> coded_rows(TaskState& state) {
  const int64_t max = state.options.length - 50, step = max / 32, size = max / 50;
  if (size < 4) refuse_length("fwe", state.options.length);
  const Words vocabulary = coded_vocabulary(state, size);
  int64_t longest = max / 6;
  while (longest < 16 * max && state.tokens(coded_prompt(state, vocabulary, longest)) < max) longest += step;
  return [=, &state, longest = longest - step] {
    const Words own = coded_vocabulary(state, size);
    for (int64_t count = longest; count > 0; count -= step) {
      const TaskPrompt prompt = coded_prompt(state, own, count);
      if (const int64_t tokens = state.tokens(prompt); tokens <= max) return TaskRow{prompt, tokens + 50};
    }
    refuse_length("fwe", state.options.length);
  };
}

}  // namespace

std::vector<FormTask> form_tasks() {
  std::vector<FormTask> all;
  for (const Niah& niah : kNiahs) {
    const std::string name(niah.name);
    if (niah.hay == NiahHay::kEssay)
      all.push_back({name, "RULER's niah" + name.substr(name.find('_')), true});
  }
  for (const OwnTask& own : kOwnTasks)
    all.push_back({std::string(own.name), std::string(own.form), own.reads_text});
  return all;
}

std::string json_line(const TaskRow& row, int64_t index, const std::string& more) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(-1, ' ', true); };
  Words outputs;
  for (const std::string& answer : row.prompt.answers) outputs.push_back(quoted(answer));
  return fmt::format(R"({{"index": {}, "input": {}, "outputs": [{}], "length": {}, )"
                     R"("length_w_model_temp": {}, "answer_prefix": {}{}}})",
                     index, quoted(row.prompt.input), fmt::join(outputs, ", "), row.length, row.length,
                     quoted(row.prompt.prefix), more);
}

std::string form_members(std::string_view form, int64_t answer) {
  return fmt::format(R"(, "max_new_tokens": {}, "note": "form of {}; not RULER's rows")", answer, form);
}

std::function<std::string()> task_rows(const TaskOptions& options) {
  const auto state = std::make_shared<TaskState>(TaskState{options});
  if (options.task == "fwe")
    return [state, next = coded_rows(*state), i = int64_t{0}]() mutable { return json_line(next(), i++); };
  const SizedTask task = sized_task(*state);
  const std::vector<FormTask> forms = form_tasks();
  const auto form = std::ranges::find(forms, task.name, &FormTask::name);
  const std::string more = form == forms.end() ? "" : form_members(form->form, task.answer);
  return [=, size = fitting_size(*state, task), i = int64_t{0}]() mutable {
    const TaskRow row = fitting_row(*state, task, size);
    if (!task.name.starts_with("niah")) return json_line(row, i++, more);
    // The index is the answer's place in code points.
    const std::string before = row.prompt.input.substr(0, row.prompt.input.find(row.prompt.answers[0]));
    return json_line(row, std::ranges::count_if(before, [](unsigned char c) { return (c & 0xc0) != 0x80; }),
                     fmt::format(", \"token_position_answer\": {}", state->options.tokens(before)));
  };
}

}  // namespace lariat
