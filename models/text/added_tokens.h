#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/maps.h"

namespace lariat::tok {

// A token that is cut out of the text before anything else looks at it (HF tokenizers' AddedToken).
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // only between characters that are not word characters
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;
  bool normalized = true;  // is searched for in the normalised text, in its normalised form
  bool special = false;    // left out by decode(skip_special)
};

// Finds the added tokens of a text: leftmost, and the longest of those that begin there.
class AddedTokens {
 public:
  struct Span {
    size_t begin, end;
    int32_t id;  // -1: text between tokens
  };

  // `pattern` is what stands in the text: the token's content or its normalised form.
  void add(const std::string& pattern, const AddedToken& token);

  // Splits text[0, consumed) into spans that follow each other; `consumed` is text.size() when `final`, and
  // else what no text that follows can change.
  std::vector<Span> split(std::string_view text, bool final, size_t& consumed) const;

  bool empty() const { return tokens_.empty(); }

 private:
  int32_t longest_at(std::string_view text, size_t at, size_t& end) const;
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;

  FlatMap children_;               // node << 8 | byte -> node; the root is 0
  std::vector<int32_t> token_at_;  // node -> index into tokens_, or -1
  std::vector<AddedToken> tokens_;
  bool first_byte_[256] = {};
  size_t longest_ = 0;
  bool looks_around_ = false;  // some token depends on the text around it
};

}  // namespace lariat::tok
