#include "models/text/added_tokens.h"

#include <algorithm>

#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

uint64_t edge(uint64_t node, char byte) { return (node << 8) | static_cast<uint8_t>(byte); }

char32_t char_before(std::string_view text, size_t at) {
  return utf8_step(text, char_start(text, at - 1)).value;
}

bool is_space(std::string_view character) { return is_white_space(utf8_step(character, 0).value); }

}  // namespace

void AddedTokens::add(const std::string& pattern, const AddedToken& token) {
  if (pattern.empty()) return;  // empty after normalisation: never found
  if (token_at_.empty()) token_at_.push_back(-1);
  uint64_t node = 0;
  for (char byte : pattern) {
    uint64_t next = children_.find(edge(node, byte));
    if (next == FlatMap::kNone) {
      next = token_at_.size();
      token_at_.push_back(-1);
      children_.set(edge(node, byte), next);
    }
    node = next;
  }
  token_at_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  first_byte_[static_cast<uint8_t>(pattern[0])] = true;
}

int32_t AddedTokens::longest_at(std::string_view text, size_t at, size_t& end) const {
  int32_t found = -1;
  uint64_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = children_.find(edge(node, text[i]));
    if (node == FlatMap::kNone) break;
    if (token_at_[node] >= 0) {
      found = token_at_[node];
      end = i + 1;
    }
  }
  return found;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) const {
  return (begin == 0 || !is_word_char(char_before(text, begin))) &&
         (end == text.size() || !is_word_char(utf8_step(text, end).value));
}

void AddedTokens::split(std::string_view text, const Sink& sink) const {
  size_t start = 0;
  const auto pass = [&](size_t end, int32_t id) {
    if (start < end) sink(text.substr(start, end - start), id);
    start = end;
  };
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t end = 0;
    int32_t index = -1;
    if (first_byte_[static_cast<uint8_t>(text[at])]) index = longest_at(text, at, end);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    at = end;
    if (token.after_token && (begin == 0 || begin != start)) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(strip(text.substr(0, begin), is_space, false, true).size(), start);
    if (token.rstrip) end = text.size() - strip(text.substr(end), is_space, true, false).size();
    pass(begin, -1);
    pass(end, token.id);
  }
  pass(text.size(), -1);
}

}  // namespace lariat::tok
