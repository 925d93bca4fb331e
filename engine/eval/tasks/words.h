#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// wonderwords 3.0.1 (MIT, words/LICENSE). Other versions have other nouns, hence other draws.
namespace lariat {

// Contents of words/*.txt, one word per line.
extern const std::string_view kAdjectiveList, kNounList, kVerbList;

// The words of all three lists, each once, sorted by code points.
std::vector<std::string> all_words();

// All texts "adjective-noun", sorted by code points, without storing six million strings.
class WordPairs {
 public:
  WordPairs();
  uint32_t size() const;
  std::string at(uint32_t index) const;

 private:
  // Adjectives whose pairs are sorted together: "blue-eyed-" begins with "blue-".
  struct Group {
    std::vector<std::string> adjectives;
    std::vector<std::string> pairs;  // sorted; empty for one adjective
    uint32_t end;                    // index after the last pair
  };
  std::vector<std::string> nouns_;
  std::vector<Group> groups_;
};

}  // namespace lariat
