#include "models/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

#include "kernels/error.h"
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

// Members of a class, without its brackets.
constexpr const char* kSpaceMembers =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[200];
  const int n = pcre2_get_error_message(code, buffer, sizeof buffer);
  return n > 0 ? std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n)) : "unknown error";
}

// Walks a pattern and rewrites the escapes whose meaning differs.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return out_;
  }

  // Whether a '^' looks at what stands before the match, which PCRE2 does not count as lookbehind.
  bool anchors_lines() const { return anchors_lines_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: the pattern uses {}, which lariat does not support; rewrite the pattern",
                            where_, what));
  }

  void step() {
    const char c = in_[at_];
    if (c == '\\') return escape();
    if (in_class_) return class_char(c);
    if (c == '[') return open_class();
    anchors_lines_ |= c == '^';
    if (c == '}' && at_ + 1 < in_.size() && in_[at_ + 1] == '+') fail("'{n,m}+'");
    if (c == '{' && at_ + 1 < in_.size() && in_[at_ + 1] == ',') {
      out_ += "{0";  // Oniguruma: {,n} is {0,n}
      ++at_;
      return;
    }
    out_ += c;
    ++at_;
  }

  void open_class() {
    in_class_ = true;
    out_ += '[';
    ++at_;
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == ']') fail("']' right after '['");
  }

  void class_char(char c) {
    if (c == '[') {
      if (at_ + 1 >= in_.size() || in_[at_ + 1] != ':') fail("a class inside a class");
      const size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) fail("an unfinished POSIX class");
      out_.append(in_.substr(at_, end + 2 - at_));
      at_ = end + 2;
      return;
    }
    if (c == '&' && at_ + 1 < in_.size() && in_[at_ + 1] == '&') fail("'&&' inside a class");
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
  }

  void escape() {
    if (at_ + 1 >= in_.size()) fail("a '\\' at its end");
    const char e = in_[at_ + 1];
    at_ += 2;
    if (e == 's' || e == 'S') return members(kSpaceMembers, e == 'S');
    if (e == 'w' || e == 'W') return members(kWordMembers, e == 'W');
    // What PCRE2 and Oniguruma read differently, or only one of them knows.
    if (std::string_view("hHbBGgkKRXyYOzZCMQEuoNLUlcv").find(e) != std::string_view::npos) {
      fail(std::string("'\\") + e + "'");
    }
    out_ += '\\';
    out_ += e;
    if ((e == 'p' || e == 'P' || e == 'x') && at_ < in_.size() && in_[at_] == '{') {
      const size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) fail("an unfinished '{'");
      out_.append(in_.substr(at_, end + 1 - at_));
      at_ = end + 1;
    }
  }

  void members(const char* list, bool negated) {
    if (in_class_ && negated) fail("'\\S' or '\\W' inside a class");
    out_ += in_class_ ? "" : negated ? "[^" : "[";
    out_ += list;
    if (!in_class_) out_ += ']';
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool anchors_lines_ = false;
};

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
  Translator translator(pattern, where_);
  const std::string translated = translator.run();
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
  streams_ = behind == 0 && empty == 0 && !translator.anchors_lines();
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
