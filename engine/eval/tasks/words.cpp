#include "engine/eval/tasks/words.h"

#include <set>

#include "models/io/json_fields.h"

namespace lariat {

std::vector<std::string> sorted_words(std::initializer_list<std::string_view> lists) {
  std::set<std::string> words;
  for (const std::string_view list : lists) {
    for (const std::string_view line : split(list, '\n'))  // some end with a blank
      if (!line.empty()) words.emplace(line.substr(0, line.find_last_not_of(" \r") + 1));
  }
  return {words.begin(), words.end()};
}

// Only "blue" and "blue-eyed", and four such pairs, do not keep their pairs apart.
std::string WordPairs::at(size_t index) {
  const auto extends = [&](size_t i) {
    return i > 0 && i < adjectives_.size() && adjectives_[i].starts_with(adjectives_[i - 1] + "-");
  };
  size_t first = index / nouns_.size();
  if (extends(first)) --first;
  if (!extends(first + 1)) return adjectives_[first] + "-" + nouns_[index % nouns_.size()];
  std::vector<std::string>& pairs = interleaved_[first];
  if (pairs.empty()) {
    for (const size_t i : {first, first + 1})
      for (const std::string& noun : nouns_) pairs.push_back(adjectives_[i] + "-" + noun);
    std::ranges::sort(pairs);
  }
  return pairs[index - first * nouns_.size()];
}

}  // namespace lariat
