#include "engine/eval/tasks/prompts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace lariat {
namespace {

constexpr const char* kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
constexpr size_t kChain = 5;  // variables
constexpr const char* kExampleValue = "12345";

std::string drawn_needle(TaskRandom& random, const WordPairs& words, Needle type) {
  if (type == Needle::kWord) return words.at(random.python.below(words.size()));
  if (type == Needle::kUuid) return random.python.uuid();
  return std::to_string(random.python.between(1000000, 9999999));
}

void replace_in(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// "1. word 2. word"
std::string numbered(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}{}. {}", i > 0 ? " " : "", i + 1, words[i]);
  return text;
}

// The first ten of `count` sampled words are common.
TaskPrompt common_words_list(TaskRandom& random, const std::vector<std::string>& words, size_t count,
                             int common_times, int other_times) {
  if (count > words.size()) {
    throw Error(fmt::format("cwe: a list of {} words; wonderwords has {}, and RULER's file of more words is not "
                            "included; use shorter lengths",
                            count, words.size()));
  }
  std::vector<std::string> sampled, list;
  for (const size_t at : random.python.sample(words.size(), count)) sampled.push_back(words[at]);
  const auto other = sampled.begin() + static_cast<std::ptrdiff_t>(std::min(sampled.size(), size_t{10}));
  for (int i = 0; i < common_times; ++i) list.insert(list.end(), sampled.begin(), other);
  for (int i = 0; i < other_times; ++i) list.insert(list.end(), other, sampled.end());
  random.fresh().shuffle(list);
  return {
      "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones "
      "that appear most often.\n" +
          numbered(list) + "\nQuestion: What are the 10 most common words in the above list?",
      " Answer: The top 10 words that appear most often in the list are:",
      {sampled.begin(), other}};
}

}  // namespace

TaskPrompt niah_prompt(TaskRandom& random, const WordPairs& words, const NeedleTypes& types, int64_t lines) {
  const std::string_view type = types.value == Needle::kUuid ? "uuid" : "number";
  const auto needle = [&](const std::string& key, const std::string& value) {
    return fmt::format("One of the special magic {}s for {} is: {}.", type, key, value);
  };
  const std::string key = drawn_needle(random, words, types.key);
  const std::string value = drawn_needle(random, words, types.value);
  std::vector<std::string> hay(static_cast<size_t>(lines), types.needle_hay ? "" : kNoise);
  for (std::string& line : hay) {
    if (!types.needle_hay) break;
    const std::string other = drawn_needle(random, words, types.key);
    line = needle(other, drawn_needle(random, words, types.value));
  }
  const size_t place = random.python.sample(hay.size(), 1)[0];
  hay.insert(hay.begin() + static_cast<std::ptrdiff_t>(place), needle(key, value));
  random.python.sample(1, 1);  // the key that is asked for
  return {fmt::format("A special magic {0} is hidden within the following text. Make sure to memorize it. I will "
                      "quiz you about the {0} afterwards.\n{1}\nWhat is the special magic {0} for {2} mentioned in "
                      "the provided text?",
                      type, fmt::join(hay, "\n"), key),
          fmt::format(" The special magic {} for {} mentioned in the provided text is", type, key),
          {value}};
}

TaskPrompt tracking_prompt(TaskRandom& random, bool example, int64_t lines) {
  const size_t length = example ? 3 : 5;
  std::vector<std::string> names;
  while (names.size() < kChain) names.push_back(random.python.letters('A', length));
  std::set<std::string> distinct(names.begin(), names.end());
  const bool twins = distinct.size() < kChain;
  while (distinct.size() < kChain) distinct.insert(random.python.letters('A', length));
  const auto drawn_value = [&] {
    return example ? kExampleValue : std::to_string(numpy_randint(random.numpy, 10000, 99999));
  };
  const std::string value = drawn_value();
  if (twins) {
    drawn_value();  // RULER begins a second chain
    throw CannotDraw("vt: two variables have one name, where RULER fails too; use another seed");
  }
  if (lines < static_cast<int64_t>(kChain)) throw CannotDraw("vt: fewer lines than variables");
  std::vector<std::string> hay(static_cast<size_t>(lines), kNoise);
  std::vector<size_t> places = random.python.sample(hay.size(), kChain);
  std::ranges::sort(places);
  for (size_t i = 0; i < kChain; ++i) {
    hay.insert(hay.begin() + static_cast<std::ptrdiff_t>(places[i] + i),
               i == 0 ? fmt::format("VAR {} = {}", names[0], value)
                      : fmt::format("VAR {} = VAR {} ", names[i], names[i - 1]));
  }
  return {fmt::format("Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{}\n"
                      "Question: Find all variables that are assigned the value {} in the text above.",
                      fmt::join(hay, "\n"), value),
          fmt::format(" Answer: According to the chain(s) of variable assignment in the text above, {} variables "
                      "are assigned the value {}, they are: ",
                      kChain, value),
          names};
}

std::string example_text(const TaskPrompt& example) {
  return fmt::format("{} {}\n", example.text(), fmt::join(example.answers, " "));
}

std::string renamed_example(TaskRandom& random, const TaskPrompt& example) {
  std::string text = example_text(example);
  for (const std::string& name : example.answers) replace_in(text, name, random.python.letters('A', 3));
  replace_in(text, kExampleValue, std::to_string(numpy_randint(random.numpy, 10000, 99999)));
  return text;
}

TaskPrompt common_words_prompt(TaskRandom& random, const std::vector<std::string>& words, bool sparse,
                               int64_t count) {
  const TaskPrompt example =
      sparse ? common_words_list(random, words, 20, 3, 1) : common_words_list(random, words, 40, 10, 3);
  TaskPrompt prompt = common_words_list(random, words, static_cast<size_t>(count), sparse ? 6 : 30, sparse ? 1 : 3);
  prompt.input = fmt::format("{} {}\n{}", example.text(), numbered(example.answers), prompt.input);
  return prompt;
}

std::vector<std::string> coded_vocabulary(TaskRandom& random, int64_t size) {
  std::set<std::string> distinct;
  while (std::ssize(distinct) < size) distinct.insert(random.python.letters('a', 6));
  std::vector<std::string> words(distinct.begin(), distinct.end());
  random.fresh().shuffle(words);
  words.at(0) = "...";
  return words;
}

TaskPrompt coded_prompt(const TaskRandom& random, const std::vector<std::string>& vocabulary, int64_t count) {
  constexpr double kZetaOf2 = 1.6449340668482264;
  std::vector<std::string_view> coded;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto rank = static_cast<double>(i + 1);
    const auto times = static_cast<int64_t>(static_cast<double>(count) * (1 / (rank * rank)) / kZetaOf2);
    coded.insert(coded.end(), static_cast<size_t>(std::max(times, int64_t{0})), vocabulary[i]);
  }
  random.fresh().shuffle(coded);
  return {fmt::format("Read the following coded text and track the frequency of each coded word. Find the three most "
                      "frequently appeared coded words. {}\nQuestion: Do not provide any explanation. Please ignore "
                      "the dots '....'. What are the three most frequently appeared words in the above coded text?",
                      fmt::join(coded, " ")),
          " Answer: According to the coded text above, the three most frequently appeared words are:",
          {vocabulary.begin() + 1, vocabulary.begin() + 4}};
}

}  // namespace lariat
