#pragma once
#include <cstdint>
#include <functional>
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
  bool normalized = true;     // is searched for in the normalised text, in its normalised form
  bool behind_token = false;  // only right behind another one
  bool special = false;       // left out by decode(skip_special)
};

// Finds the added tokens of a text: leftmost, and the longest of those that begin there.
class AddedTokens {
 public:
  // Takes a part of a text, and the id of the token that it is; -1: it stands between tokens.
  using Sink = std::function<void(std::string_view part, int32_t id)>;

  // `pattern` is what stands in the text: the token's content or its normalised form.
  void add(const std::string& pattern, const AddedToken& token);

  // Passes on all parts of the text, in order.
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
