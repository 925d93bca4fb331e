#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/maps.h"

namespace lariat::tok {

// HF tokenizers' AddedToken: cut out of the text before any other processing.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // only between characters that are not word characters
  bool lstrip = false;       // includes the white space on its left
  bool rstrip = false;
  bool normalized = true;    // matched in its normalised form in the normalised text
  bool after_token = false;  // only directly after another token
  bool special = false;      // skipped by decode(skip_special)
};

// Finds the added tokens of a text: leftmost first, then longest.
class AddedTokens {
 public:
  // id -1: text between tokens.
  using Sink = std::function<void(std::string_view part, int32_t id)>;

  // pattern: the token's content or its normalised form.
  void add(const std::string& pattern, const AddedToken& token);

  void split(std::string_view text, const Sink& sink) const;

 private:
  int32_t longest_at(std::string_view text, size_t at, size_t& end) const;
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;

  FlatMap children_;               // node << 8 | byte -> node; the root is 0
  std::vector<int32_t> token_at_;  // node -> index into tokens_, or -1
  std::vector<AddedToken> tokens_;
  bool first_byte_[256] = {};
};

}  // namespace lariat::tok
