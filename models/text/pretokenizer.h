#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/regex.h"

namespace lariat::tok {

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// One component of a "pre_tokenizer", in the order of the file.
struct PreTokenizeStep {
  enum class Kind { kSplit, kByteLevel, kDigits, kMetaspace };
  enum class Prepend { kNever, kFirst, kAlways };
  Kind kind = Kind::kSplit;
  std::optional<Regex> regex{};  // kSplit by a regex; kByteLevel with use_regex
  std::string literal{};         // kSplit by a string (not empty); kMetaspace: the replacement, one character
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;                // kSplit: matches are what is kept, the text between them separates
  bool add_prefix_space = false;      // kByteLevel
  bool individual_digits = false;     // kDigits
  Prepend prepend = Prepend::kNever;  // kMetaspace
  bool split = true;                  // kMetaspace
};

// Cuts a text into the words that BPE works on.
class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view word)>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizeStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }

  // Whether a space goes before a text that opens with these bytes, before consume() sees it.
  bool wants_prefix_space(std::string_view text) const;

  // Where the search goes on when a text continues.
  struct Progress {
    size_t resume = 0;      // no match begins below this offset (beyond those returned)
    size_t retry_size = 0;  // text size from which looking again is worth it
  };

  // Passes on the words of text[0, n) and returns n: the whole text when `final`, and else as far as no text
  // that may follow changes a word. `first`: the text opens the whole input. `progress` belongs to this text:
  // the caller hands the same one in when it calls again with text[n, end) and more, and a new one for a new
  // text.
  size_t consume(std::string_view text, bool first, bool final, Progress& progress, RegexScratch& scratch,
                 const Sink& sink) const;

 private:
  std::vector<PreTokenizeStep> steps_;
};

}  // namespace lariat::tok
