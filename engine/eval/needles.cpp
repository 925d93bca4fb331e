#include "engine/eval/needles.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace lariat {
namespace {

struct TaskWords {
  std::string_view name, hidden;
};
constexpr TaskWords kTasks[] = {  // in the order of NeedleTask
    {"passkey", "A number is hidden in {} and asked for at the end."},
    {"multikey", "Numbers of {1} names are hidden in {0} and one of them is asked for at the end."},
    {"multivalue", "{1} numbers of one name are hidden in {0} and asked for at the end."},
    {"multiquery", "Numbers of {1} names are hidden in {0} and asked for at the end."},
    {"tracking",
     "A variable's number, which others take over in {1} steps, is hidden in {0}; all are asked for."}};

// Names look like "amber-anchor".
constexpr std::array kAdjectives = {
    "amber",  "ancient", "bold",  "brave", "bright", "calm",   "clever", "cosmic", "crimson", "curious",
    "eager",  "fancy",   "fuzzy", "giant", "golden", "hidden", "humble", "icy",    "jolly",   "lively",
    "mellow", "misty",   "noble", "odd",   "proud",  "quiet",  "rapid",  "rusty",  "silent",  "tiny"};
constexpr std::array kNouns = {
    "anchor", "badger", "basket",  "beacon", "bridge", "button", "canyon", "castle", "compass", "dolphin",
    "engine", "falcon", "feather", "garden", "hammer", "island", "jacket", "kettle", "ladder",  "magnet",
    "marble", "needle", "otter",   "pepper", "pocket", "rocket", "saddle", "tunnel", "violin",  "window"};
constexpr int64_t kLeastNumber = 1'000'000;  // seven digits
constexpr int64_t kLeastValue = 10'000;      // of a variable: five digits
constexpr int kLetters = 5;                  // letters of a variable name

std::string new_name(NeedleRandom& random) {
  const auto* adjective = kAdjectives[static_cast<size_t>(random.below(kAdjectives.size()))];
  return fmt::format("{}-{}", adjective, kNouns[static_cast<size_t>(random.below(kNouns.size()))]);
}

std::string new_variable(NeedleRandom& random) {
  std::string name;
  for (int i = 0; i < kLetters; ++i) name += static_cast<char>('A' + random.below(26));
  return name;
}

template <class Make>
std::vector<std::string> distinct(int64_t count, NeedleRandom& random, const Make& make) {
  std::vector<std::string> values;
  std::set<std::string> seen;
  while (std::ssize(values) < count) {
    std::string value = make(random);
    if (seen.insert(value).second) values.push_back(std::move(value));
  }
  return values;
}

std::vector<double> spread(int64_t count, NeedleRandom& random) {
  std::vector<double> depths;
  for (int64_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(random.below(1'000'000)) / 1e6;
    depths.push_back((static_cast<double>(i) + part) / static_cast<double>(count));
  }
  return depths;
}

Needles numbers_of_names(const NeedleOptions& options, double depth, NeedleRandom& random) {
  const NeedleTask task = options.task;
  const bool one_name = task == NeedleTask::kMultivalue, one_asked = task == NeedleTask::kMultikey;
  const auto names = distinct(one_name ? 1 : options.count, random, new_name);
  const auto numbers = distinct(options.count, random, [](NeedleRandom& from) {
    return std::to_string(kLeastNumber + from.below(9 * kLeastNumber));
  });
  std::vector<double> depths = spread(options.count - 1, random);
  depths.insert(depths.begin(), depth);
  Needles needles;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::string& name = names[one_name ? 0 : i];
    needles.lines.push_back({fmt::format("A lucky number of {} is {}.", name, numbers[i]), depths[i]});
  }
  std::ranges::stable_sort(needles.lines, {}, &Needles::Line::depth);
  const std::string asked = one_asked ? names[0] : joined(names);
  const bool single = one_asked || options.count == 1;
  needles.task =
      "Lucky numbers are mentioned here and there in the text below. Keep them in mind as you read: it is "
      "followed by a question about them.";
  const auto* plural = single ? "" : "s";
  needles.question = fmt::format("Which lucky number{} of {} does the text mention?", plural, asked);
  if (!single) needles.question += fmt::format(" Name all {}.", options.count);
  needles.answer = fmt::format("The lucky number{} of {} {}", plural, asked, single ? "is" : "are");
  needles.expected = one_asked ? std::vector{numbers[0]} : numbers;
  return needles;
}

Needles chain_of_variables(int64_t steps, double depth, NeedleRandom& random) {
  const auto names = distinct(steps + 1, random, new_variable);
  const std::string value = std::to_string(kLeastValue + random.below(9 * kLeastValue));
  std::vector<double> depths = spread(steps, random);
  depths.push_back(depth);
  std::ranges::sort(depths);
  Needles needles;
  for (size_t i = 0; i < names.size(); ++i) {
    needles.lines.push_back(
        {fmt::format("LET {} = {}.", names[i], i == 0 ? value : names[i - 1]), depths[i]});
  }
  needles.task =
      "The text below sets variables here and there, to a number or to what another one is. Keep track of "
      "them: it is followed by a question about their values.";
  needles.question = fmt::format("Which variables have the value {}? Name all {}.", value, std::ssize(names));
  needles.answer = fmt::format("The variables that have the value {} are", value);
  needles.expected = names;
  return needles;
}

}  // namespace

std::string_view name_of(NeedleTask task) { return kTasks[static_cast<size_t>(task)].name; }

std::optional<NeedleTask> needle_task(std::string_view name) {
  for (const NeedleTask task : kNeedleTasks) {
    if (name_of(task) == name) return task;
  }
  return std::nullopt;
}

NeedleRandom::NeedleRandom(uint64_t seed, int64_t length, double depth, int64_t trial) : state_(seed) {
  mix(static_cast<uint64_t>(length));
  mix(static_cast<uint64_t>(std::llround(depth * 1e6)));
  mix(static_cast<uint64_t>(trial));
}

void NeedleRandom::mix(uint64_t value) {
  state_ += value + 0x9E3779B97F4A7C15U;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  state_ = z ^ (z >> 31);
}

int64_t NeedleRandom::below(int64_t limit) {
  const auto number = static_cast<int64_t>(state_ % static_cast<uint64_t>(limit));
  mix(0);
  return number;
}

Needles passkey_needles(int64_t key, double depth) {
  return {.task =
              "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
              "I will quiz you about the important information there.",
          .lines = {{fmt::format("The pass key is {0}. Remember it. {0} is the pass key.", key), depth}},
          .question = "What is the pass key?",
          .answer = "The pass key is",
          .expected = {std::to_string(key)}};
}

Needles make_needles(const NeedleOptions& options, double depth, NeedleRandom random) {
  if (options.task == NeedleTask::kPasskey) return passkey_needles(1 + random.below(kLargestPasskey), depth);
  return options.task == NeedleTask::kTracking ? chain_of_variables(options.count, depth, random)
                                               : numbers_of_names(options, depth, random);
}

std::string needles_noun(NeedleTask task) {
  if (task == NeedleTask::kPasskey) return "passkeys";
  return fmt::format("{} ({})", task == NeedleTask::kTracking ? "variables" : "numbers", name_of(task));
}

std::string hidden_in(const NeedleOptions& options, const std::string& file) {
  const std::string_view sentence = kTasks[static_cast<size_t>(options.task)].hidden;
  return fmt::format(fmt::runtime(sentence), file.empty() ? "filler text" : file, options.count);
}

std::vector<std::string> found_in(NeedleTask task, std::string_view answer,
                                  const std::vector<std::string>& expected) {
  std::vector<std::string> found;
  std::ranges::copy_if(expected, std::back_inserter(found),
                       [&](const std::string& one) { return score_of(metric_of(task), answer, {one}) == 1; });
  return found;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace lariat
