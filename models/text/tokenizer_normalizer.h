#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/text/unicode.h"

namespace lariat::tok {

struct NormalizeStep {
  enum class Kind { kForm, kPrepend, kReplace };
  Kind kind;
  NormalForm form = NormalForm::kNfc;  // kForm
  std::string pattern;                 // kReplace: literal, not empty
  std::string content;                 // kPrepend, kReplace
};

// Replaces every occurrence of `pattern` (not empty), from left to right.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

// The "normalizer" of a tokenizer.json: its steps in order.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizeStep> steps);

  // `at_start`: whether the text opens its section, which is where Prepend applies (not to an empty text).
  std::string apply(std::string_view text, bool at_start) const;

  // How much of the text may be normalised now although more follows. 0: nothing is certain yet.
  size_t certain_prefix(std::string_view text) const;

 private:
  std::vector<NormalizeStep> steps_;
  bool has_form_ = false;
  bool streams_ = true;
};

}  // namespace lariat::tok
