#include "engine/eval/tasks/words.h"

#include <algorithm>

#include "models/io/json_fields.h"

namespace lariat {
namespace {

// Sorted, each once, without the blanks that end some lines.
std::vector<std::string> sorted_words(std::initializer_list<std::string_view> lists) {
  std::vector<std::string> words;
  for (const std::string_view list : lists) {
    for (const std::string_view line : split(list, '\n')) {
      const size_t last = line.find_last_not_of(" \r");
      if (last != line.npos) words.emplace_back(line.substr(0, last + 1));
    }
  }
  std::ranges::sort(words);
  const auto rest = std::ranges::unique(words);
  words.erase(rest.begin(), rest.end());
  return words;
}

}  // namespace

std::vector<std::string> all_words() { return sorted_words({kNounList, kAdjectiveList, kVerbList}); }

WordPairs::WordPairs() : nouns_(sorted_words({kNounList})) {
  std::vector<std::string> adjectives = sorted_words({kAdjectiveList});
  for (std::string& adjective : adjectives) adjective += '-';
  std::ranges::sort(adjectives);
  uint32_t end = 0;
  for (const std::string& adjective : adjectives) {
    if (groups_.empty() || !adjective.starts_with(groups_.back().adjectives[0])) groups_.push_back({});
    groups_.back().adjectives.push_back(adjective);
    groups_.back().end = end += static_cast<uint32_t>(nouns_.size());
  }
  for (Group& group : groups_) {
    if (group.adjectives.size() == 1) continue;
    for (const std::string& adjective : group.adjectives)
      for (const std::string& noun : nouns_) group.pairs.push_back(adjective + noun);
    std::ranges::sort(group.pairs);
  }
}

uint32_t WordPairs::size() const { return groups_.back().end; }

std::string WordPairs::at(uint32_t index) const {
  const auto group = std::ranges::upper_bound(groups_, index, {}, &Group::end);
  const uint32_t begin = group == groups_.begin() ? 0 : std::prev(group)->end;
  return group->pairs.empty() ? group->adjectives[0] + nouns_[index - begin] : group->pairs[index - begin];
}

}  // namespace lariat
