#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lariat::tok {

// Memory of searches, not shared between threads, and their budget of steps, for one text.
class RegexScratch {
 public:
  explicit RegexScratch(size_t text_bytes);

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl, void (*)(Impl*)> impl_;
};

// A tokenizer.json's pattern, run by PCRE2 over valid UTF-8 (regex_syntax.h).
class Regex {
 public:
  // `where` (file and key) begins every error. Throws Error for an unsupported pattern.
  Regex(const std::string& pattern, std::string where);

  // Finds the first match at or after `from`. Throws Error if the pattern exceeds the budget.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end, RegexScratch& scratch) const;

 private:
  int search(std::string_view text, size_t from, bool cut, uint64_t steps, RegexScratch::Impl& scratch) const;
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string where_;
};

// GPT-2's pattern, of HF's ByteLevel pre-tokenizer with use_regex.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace lariat::tok
