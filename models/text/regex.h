#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lariat::tok {

// The memory that searches need and threads cannot share, and their budget of steps. One per text, of so many
// bytes.
class RegexScratch {
 public:
  explicit RegexScratch(size_t text_bytes);

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

  // Finds the first match that begins at or after `from`: [begin, end). Throws Error when the pattern
  // backtracks or looks ahead without measure.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end, RegexScratch& scratch) const;

 private:
  int search(std::string_view text, size_t from, bool cut, uint64_t steps, RegexScratch::Impl& scratch) const;
  struct Code;  // of PCRE2
  std::shared_ptr<const Code> code_;
  std::string where_;
};

// GPT-2's pattern, which HF's ByteLevel pre-tokenizer uses when use_regex is set.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace lariat::tok
