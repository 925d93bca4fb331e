#include "models/io/nearest_name.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lariat {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '_' ? '-' : c;
  return result;
}

// Damerau-Levenshtein distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + other});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view typed, std::span<const std::string> known) {
  constexpr size_t kLongest = 100;  // bytes; a longer word is not a name
  constexpr size_t kTelling = 3;    // letters of a prefix or suffix
  const std::string word = lower(typed);
  if (word.empty() || word.size() > kLongest) return "";
  std::string nearest;
  const std::string_view ending =
      std::string_view(word).substr(std::min(word.find_first_not_of('-'), word.size()));
  // A prefix or suffix counts as one wrong letter; of two, the shorter rest wins.
  std::pair least(word.size() / 3 + 1, size_t{0});
  for (const std::string& name : known) {
    const std::string other = lower(name);
    const bool begins = std::min(word.size(), other.size()) >= kTelling &&
                        (other.starts_with(word) || word.starts_with(other));
    const bool ends = ending.size() >= kTelling && other.ends_with(ending);
    const size_t wrong = distance(word, other);
    const std::pair found(begins || ends ? std::min<size_t>(1, wrong) : wrong, wrong);
    if (found < least) {
      least = found;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace lariat
