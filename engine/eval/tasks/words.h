#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lariat {

// The lists of wonderwords 3.0.1 (MIT, words/LICENSE), one word per line. Other versions have other nouns.
extern const std::string_view kAdjectives, kNouns, kVerbs;

// The words of some lists, each once, sorted by code points.
std::vector<std::string> sorted_words(std::initializer_list<std::string_view> lists);

// All texts "adjective-noun", sorted by code points, without six million strings.
class WordPairs {
 public:
  size_t size() const { return adjectives_.size() * nouns_.size(); }
  std::string at(size_t index);

 private:
  std::vector<std::string> adjectives_ = sorted_words({kAdjectives}), nouns_ = sorted_words({kNouns});
  std::map<size_t, std::vector<std::string>> interleaved_;  // sorted pairs of an adjective and its extension
};

}  // namespace lariat
