#include "models/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

#include "kernels/error.h"
#include "models/text/regex_syntax.h"
#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

// Limits on backtracking and lookahead, so that a hostile pattern ends. A sane split takes fewer than
// kUsualSteps steps and looks ahead less than kWindow bytes; only runs of thousands of spaces or letters need
// more, and are then consumed at once. What a search needs beyond these is taken from a step budget: each
// encoder starts with kMostSteps (a fraction of a second), and every byte matched refills it by
// kStepsPerByte. So all searches together stay linear in the text. (PCRE2's own match limit does not count
// the characters that a repeat runs over.)
constexpr uint32_t kUsualSteps = 10'000, kStepsPerByte = 64, kMostSteps = 20'000'000;
constexpr size_t kWindow = 1024;
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr size_t kJitStackStart = 64 << 10, kJitStackMax = 16 << 20;
constexpr size_t kMaxPatternBytes = 64 << 10;

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[200];
  const int n = pcre2_get_error_message(code, buffer, sizeof buffer);
  return n > 0 ? std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n)) : "unknown error";
}

}  // namespace

struct RegexScratch::Impl {
  template <class T>
  using Owned = std::unique_ptr<T, void (*)(T*)>;

  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr), pcre2_match_context_free};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr),
                               pcre2_jit_stack_free};
  uint32_t budget = kMostSteps;  // steps

  Impl() {
    if (!data || !context) throw Error("regular expressions: out of memory");
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

RegexScratch::RegexScratch() : impl_(new Impl, [](Impl* impl) { delete impl; }) {}

struct Regex::Code {
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> pattern;
  bool jit;
};

Regex::Regex(const std::string& pattern, std::string where) : where_(std::move(where)) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    throw Error(
        fmt::format("{}: a pattern of {} bytes; expected 1 to {}", where_, pattern.size(), kMaxPatternBytes));
  }
  const auto [translated, anchors_lines] = to_pcre2(pattern, where_);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                         &error, &offset, nullptr);
  if (code == nullptr) {
    throw Error(fmt::format("{}: not a usable pattern ({} at byte {} of {})", where_, pcre_message(error),
                            offset, translated.substr(0, 200)));
  }
  const bool jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  code_ = std::make_shared<Code>(Code{{code, pcre2_code_free}, jit});
  uint32_t behind = 0, empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
  streams_ = behind == 0 && empty == 0 && !anchors_lines;
}

int Regex::search(std::string_view text, size_t from, uint32_t partial, uint32_t steps,
                  RegexScratch& scratch) const {
  RegexScratch::Impl& s = *scratch.impl_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_set_match_limit(s.context.get(), steps);
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    rc = pcre2_jit_match(code_->pattern.get(), subject, text.size(), from, partial, s.data.get(),
                         s.context.get());
  }
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The check of the whole subject at every call would make a split quadratic; callers pass valid UTF-8.
    rc = pcre2_match(code_->pattern.get(), subject, text.size(), from,
                     partial | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s.data.get(), s.context.get());
  }
  return rc;
}

int Regex::search_within_budget(std::string_view text, size_t from, uint32_t partial,
                                RegexScratch& scratch) const {
  uint32_t& budget = scratch.impl_->budget;
  int rc = search(text, from, partial, kUsualSteps, scratch);
  for (uint32_t steps = 8 * kUsualSteps; rc == PCRE2_ERROR_MATCHLIMIT && budget > 0; steps *= 8) {
    steps = std::min(steps, budget);
    budget -= steps;
    rc = search(text, from, partial, steps, scratch);
  }
  return rc;
}

Regex::Found Regex::find(std::string_view text, size_t from, bool more_to_come, size_t& begin, size_t& end,
                         RegexScratch& scratch) const {
  RegexScratch::Impl& s = *scratch.impl_;
  uint64_t looked_ahead = 0;  // bytes, beyond the usual
  int rc = 0;
  for (size_t window = kWindow;; window *= 8) {
    const bool whole = text.size() - from <= window;
    const size_t size = whole ? text.size() : char_start(text, from + window);
    const bool cut = more_to_come || !whole;
    rc = search_within_budget(text.substr(0, size), from, cut ? PCRE2_PARTIAL_HARD : 0, scratch);
    // A match that did not touch the end of its window is one whatever follows.
    if (whole || (rc != PCRE2_ERROR_NOMATCH && rc != PCRE2_ERROR_PARTIAL)) break;
    looked_ahead += std::min(8 * window, text.size() - from);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return Found::kNone;
  if (rc < 0 && rc != PCRE2_ERROR_PARTIAL) check_result(rc);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(s.data.get());
  begin = range[0];
  end = range[1];
  if (rc == PCRE2_ERROR_PARTIAL) return Found::kPartial;
  const uint64_t budget = s.budget + uint64_t{kStepsPerByte} * (end - std::min(from, end));
  if (looked_ahead > budget) {
    throw Error(where_ +
                ": the pattern looks too far ahead on this text; use a pattern whose repeats end sooner");
  }
  s.budget = static_cast<uint32_t>(std::min<uint64_t>(kMostSteps, budget - looked_ahead));
  return Found::kMatch;
}

void Regex::check_result(int rc) const {
  if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT) {
    throw Error(
        fmt::format("{}: the pattern backtracks without measure on this text ({}); use a pattern without "
                    "nested repeats",
                    where_, pcre_message(rc)));
  }
  throw Error(fmt::format("{}: the pattern failed on this text ({})", where_, pcre_message(rc)));
}

}  // namespace lariat::tok
