#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lariat::tok {

// What a search needs and threads cannot share: match data, JIT stack, step budget. One per encoder.
class RegexScratch {
 public:
  RegexScratch();

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl, void (*)(Impl*)> impl_;
};

// A pattern of a tokenizer.json (Oniguruma, Ruby syntax) run by PCRE2 over valid UTF-8. It is rewritten where
// the two differ (regex_syntax.h); what is not rewritten is an error, not a guess.
class Regex {
 public:
  // `where` (file and key) opens every error message. Throws Error on a pattern that is not supported.
  Regex(const std::string& pattern, std::string where);

  enum class Found {
    kMatch,    // [begin, end)
    kNone,     // and no text that may follow changes that
    kPartial,  // only with more_to_come: what follows decides on the match that starts at `begin`
  };
  // The first match that begins at or after `from`. Throws Error when the pattern backtracks or
  // looks ahead without measure.
  Found find(std::string_view text, size_t from, bool more_to_come, size_t& begin, size_t& end,
             RegexScratch& scratch) const;

  // Whether matches are never empty and depend only on the text from their begin on, so that a text can be
  // searched in pieces.
  bool streams() const { return streams_; }

 private:
  int search(std::string_view text, size_t from, uint32_t partial, uint32_t steps,
             RegexScratch& scratch) const;
  int search_within_budget(std::string_view text, size_t from, uint32_t partial, RegexScratch& scratch) const;
  void check_result(int rc) const;
  struct Code;  // of PCRE2
  std::shared_ptr<const Code> code_;
  std::string where_;
  bool streams_ = false;
};

// GPT-2's pattern, which HF's ByteLevel pre-tokenizer uses when use_regex is set.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace lariat::tok
