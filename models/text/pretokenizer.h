#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/regex.h"

namespace lariat::tok {

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizeStep {
  enum class Kind { kSplit, kByteLevel, kDigits, kMetaspace };
  enum class Prepend { kNever, kFirst, kAlways };
  Kind kind = Kind::kSplit;
  std::optional<Regex> regex{};  // kSplit by a regex; kByteLevel with use_regex
  std::string literal{};         // kSplit by a string (not empty); kMetaspace: replacement, one character
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // kSplit: matches are kept, the text between them separates
  bool add_prefix_space = false;
  Prepend prepend = Prepend::kNever;
  bool split = true;  // false: rewrites the text only (kByteLevel, kMetaspace)
};

// first: the text begins the whole input.
using WordSink = std::function<void(std::string_view word)>;
void pre_tokenize(const std::vector<PreTokenizeStep>& steps, std::string_view text, bool first,
                  RegexScratch& scratch, const WordSink& sink);

}  // namespace lariat::tok
