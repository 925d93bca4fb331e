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

// Limits on backtracking and lookahead: a hostile pattern must end. Only runs of thousands of spaces or
// letters take more than kUsualSteps steps and kUsualWindow bytes of lookahead. Additional work is charged to
// the text's budget, linear in its bytes. (PCRE2's match limit does not count characters inside a repeat.)
constexpr uint64_t kUsualSteps = 10'000, kStepsPerByte = 64, kMostSteps = 20'000'000;
constexpr size_t kUsualWindow = 1024;
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
  uint64_t budget;  // steps of a match, or bytes of lookahead

  explicit Impl(size_t text_bytes) : budget(kMostSteps + kStepsPerByte * text_bytes) {
    if (!data || !context) throw Error("regular expressions: out of memory");
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

RegexScratch::RegexScratch(size_t text_bytes)
    : impl_(new Impl(text_bytes), [](Impl* impl) { delete impl; }) {}

struct Regex::Code {
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> pattern;
  bool jit;
};

Regex::Regex(const std::string& pattern, std::string where) : where_(std::move(where)) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    throw Error(
        fmt::format("{}: a pattern of {} bytes; expected 1 to {}", where_, pattern.size(), kMaxPatternBytes));
  }
  const std::string translated = to_pcre2(pattern, where_);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                         &error, &offset, nullptr);
  if (code == nullptr) {
    throw Error(fmt::format("{}: not a usable pattern ({} at byte {} of {}); rewrite the pattern", where_,
                            pcre_message(error), offset, translated.substr(0, 200)));
  }
  const bool jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  code_ = std::make_shared<Code>(Code{{code, pcre2_code_free}, jit});
}

// cut: the text continues after its end here.
int Regex::search(std::string_view text, size_t from, bool cut, uint64_t steps,
                  RegexScratch::Impl& scratch) const {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint32_t options = cut ? PCRE2_PARTIAL_HARD : 0;
  pcre2_match_context* const context = scratch.context.get();
  pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit)
    rc = pcre2_jit_match(code_->pattern.get(), subject, text.size(), from, options, scratch.data.get(),
                         context);
  if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
  // A UTF-8 check of the whole subject per call would make a split quadratic; callers pass valid UTF-8.
  return pcre2_match(code_->pattern.get(), subject, text.size(), from,
                     options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.data.get(), context);
}

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end,
                 RegexScratch& scratch) const {
  RegexScratch::Impl& s = *scratch.impl_;
  uint64_t steps = kUsualSteps;
  for (size_t window = kUsualWindow;;) {
    const bool whole = text.size() - from <= window;
    const size_t size = whole ? text.size() : char_start(text, from + window);
    const int rc = search(text.substr(0, size), from, !whole, steps, s);
    if (rc >= 0) {  // the match did not reach the end of its window: it holds for any following text
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(s.data.get());
      begin = range[0];
      end = range[1];
      return true;
    }
    if (whole && rc == PCRE2_ERROR_NOMATCH) return false;
    const bool backtracks = rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT;
    if (!backtracks && rc != PCRE2_ERROR_NOMATCH && rc != PCRE2_ERROR_PARTIAL)
      throw Error(fmt::format("{}: the pattern failed on this text ({}); rewrite the pattern", where_,
                              pcre_message(rc)));
    const uint64_t more = backtracks ? steps *= 8 : std::min(window *= 8, text.size() - from);
    if (more > s.budget) {
      throw Error(where_ + (backtracks ? ": the pattern backtracks too much on this text; use a "
                                         "pattern without nested repeats"
                                       : ": the pattern looks too far ahead on this text; use a pattern "
                                         "with shorter repeats"));
    }
    s.budget -= more;
  }
}

}  // namespace lariat::tok
