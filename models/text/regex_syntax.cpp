#include "models/text/regex_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

constexpr size_t kMaxNesting = 64;  // nested classes

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                         PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// Members of a PCRE2 class equal to Oniguruma's \s and \w inside a class.
constexpr const char* kSpaceMembers =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// Oniguruma 6.9: unicode.c, CR_Alnum and others.
struct Posix {
  const char* name;
  const char* members;
  bool negated = false;
};
constexpr Posix kPosix[] = {
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"alpha", R"(\p{Alphabetic})"},
    {"ascii", R"(\x{0}-\x{7f})"},
    {"blank", R"(\x{9}\p{Zs})"},
    {"cntrl", R"(\p{Cc})"},
    {"digit", R"(\p{Nd})"},
    {"graph", R"(\p{Cc}\p{Cn}\p{Cs}\p{Z})", true},
    {"lower", R"(\p{Lowercase})"},
    {"print", R"(\p{Cc}\p{Cn}\p{Cs}\p{Zl}\p{Zp})", true},
    {"punct", R"(\p{P}\p{S})"},
    {"space", kSpaceMembers},
    {"upper", R"(\p{Uppercase})"},
    {"word", kWordMembers},
    {"xdigit", "0-9A-Fa-f"},
};

// Members of a PCRE2 class, and one-character patterns for what PCRE2 lacks inside a class: classes, '&&' and
// negations.
struct CharacterSet {
  std::string members{};
  std::vector<std::string> patterns{};
  bool cased = false;  // depends on (?i)

  void add(const CharacterSet& other, bool negated) {
    cased |= other.cased;
    if (negated) return patterns.push_back(other.pattern(true));
    members += other.members;
    patterns.insert(patterns.end(), other.patterns.begin(), other.patterns.end());
  }

  std::string pattern(bool negated) const {
    std::string one = (negated ? "[^" : "[") + members + "]";
    if (members.empty()) one = negated ? "(?s:.)" : "(?!)";
    const bool property = members.starts_with("\\p{") || members.starts_with("\\P{");
    if (property && members.find('}') + 1 == members.size())
      one = ((members[1] == 'p') == negated ? "\\P" : "\\p") + members.substr(2);
    if (patterns.empty()) return one;
    const std::string others = fmt::format("{}", fmt::join(patterns, "|"));
    if (negated) return fmt::format("(?:(?!{}){})", others, one);
    return members.empty() ? fmt::format("(?:{})", others) : fmt::format("(?:{}|{})", one, others);
  }
};

std::string member(char32_t c) { return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c)); }

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (!done()) step();
    out_.append(groups_.back().isolated, ')');
    return std::move(out_);
  }

 private:
  struct Group {
    bool ignores_case = false;
    size_t isolated = 0;  // groups opened by (?i), which end with this one
  };

  bool done() const { return at_ >= in_.size(); }
  bool looking_at(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(
        fmt::format("{}: the pattern uses {}, not supported here; rewrite the pattern", where_, what));
  }

  void step() {
    const char c = in_[at_];
    if (c == '\\') return escape();
    if (c == '[') return character_class();
    if (c == '(') return open_group();
    if (c == '{') return interval();
    if (c == '}' && in_.substr(at_ + 1).starts_with('+')) fail("'{n,m}+'");
    if (c == ')' && groups_.size() > 1) {
      out_.append(groups_.back().isolated, ')');
      groups_.pop_back();
    }
    out_ += c;
    ++at_;
  }

  // {,n} is {0,n}; {n}? is an optional {n}, not a lazy one.
  void interval() {
    out_ += take("{,") ? "{0," : "{";
    if (out_.back() == '{') ++at_;
    size_t end = at_;
    while (end < in_.size() && is_digit(in_[end])) ++end;
    if (end > at_ && out_.back() == '{' && in_.substr(end).starts_with("}?")) fail("'{n}?'");
  }

  // (?imx-imx), (?imx-imx:...), or any other group.
  void open_group() {
    size_t end = at_ + 2;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) ++end;
    const bool options =
        looking_at("(?") && end > at_ + 2 && end < in_.size() && (in_[end] == ':' || in_[end] == ')');
    if (looking_at("(?#")) {
      at_ = std::min(in_.size(), in_.find(')', at_) + 1);
      if (at_ == 0) fail("an unfinished comment");
      return;
    }
    if (!options) {
      groups_.push_back({groups_.back().ignores_case});
      out_ += '(';
      ++at_;
      return;
    }
    if (in_[end] == ':') {
      groups_.push_back({groups_.back().ignores_case});
    } else {
      ++groups_.back().isolated;
    }
    out_ += "(?";
    bool on = true;
    for (const char flag : in_.substr(at_ + 2, end - at_ - 2)) {
      if (flag == '-') on = false;
      if (flag == 'i') groups_.back().ignores_case = on;
      out_ += flag == 'm' ? 's' : flag;
    }
    out_ += ':';
    at_ = end + 1;
  }

  void escape() {
    ++at_;
    if (done()) fail("a '\\' at its end");
    const char e = in_[at_];
    if (std::string_view("sSwWpP").find(e) != std::string_view::npos) {
      bool negated = false;
      CharacterSet set = named_set(negated);
      // Outside a class, Oniguruma's \w also matches the digits and fractions of Latin-1 (²).
      if (e == 'w' || e == 'W') set.members += R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
      out_ += set.pattern(negated);
      return;
    }
    // PCRE2 and Oniguruma differ on these, or only one supports them.
    if (std::string_view("hHbBGgkKRXyYOzZCMQEuoNLUlcv").find(e) != std::string_view::npos) {
      fail(std::string("'\\") + e + "'");
    }
    if (e == 'x') {
      out_ += member(hex());
      return;
    }
    out_ += '\\';
    out_ += e;
    ++at_;
  }

  // at_ is after the backslash.
  CharacterSet named_set(bool& negated) {
    const char e = in_[at_++];
    negated = e >= 'A' && e <= 'Z';
    if (e == 's' || e == 'S') return {.members = kSpaceMembers};
    if (e == 'w' || e == 'W') return {.members = kWordMembers, .cased = true};
    if (e == 'd' || e == 'D') return {.members = "\\d"};
    const size_t end = looking_at("{") ? in_.find('}', at_) : std::string_view::npos;
    if (end == std::string_view::npos) fail("a '\\p' without '{...}'");
    ++at_;
    if (take("^")) negated = !negated;
    if (groups_.back().ignores_case) fail("a '\\p' under (?i)");
    const std::string name(in_.substr(at_, end - at_));
    at_ = end + 1;
    const std::string of = std::exchange(negated, false) ? "\\P{" : "\\p{", script = of + "sc:" + name + "}";
    return {.members = compiles(script) ? script : of + name + "}", .cased = true};
  }

  // xHH or x{H...}
  char32_t hex() {
    ++at_;
    const bool braces = take("{");
    uint32_t value = 0;
    const char* const first = in_.data() + at_;
    const char* const last = in_.data() + std::min(in_.size(), at_ + (braces ? 8 : 2));
    const auto [end, error] = std::from_chars(first, last, value, 16);
    at_ += static_cast<size_t>(end - first);
    if (error != std::errc() || (braces && !take("}"))) fail("an unfinished '\\x'");
    if (!braces && value >= 0x80) fail("a byte of a character ('\\x80' to '\\xff')");
    return value;
  }

  void character_class() {
    ++at_;
    const bool negated = take("^");
    const CharacterSet set = class_set(0);
    // Oniguruma adds the other case to the finished set, which can restore removed characters.
    if (groups_.back().ignores_case && set.cased && !set.patterns.empty())
      fail("a negated class or '&&' inside a class, under (?i)");
    out_ += set.pattern(negated);
  }

  // Set of a class, without its own negation; at_ is after '[' or '[^'.
  CharacterSet class_set(size_t depth) {
    if (depth > kMaxNesting) fail("too many classes inside each other");
    CharacterSet set;
    std::string before;  // "(?=...)" for each set before a '&&': all match the same character
    for (bool first = true;; first = false) {
      if (done()) fail("an unfinished class");
      if (!first && take("]")) break;  // right after the '[' it is a member
      bool negated = false;
      if (take("&&")) {
        before += "(?=" + set.pattern(false) + ")";
        set = {.cased = set.cased};
      } else if (take("[:")) {
        const CharacterSet named = posix_set(negated);
        set.add(named, negated);
        no_range();
      } else if (take("[")) {
        negated = take("^");
        set.add(class_set(depth + 1), negated);
      } else if (is_named_set()) {
        ++at_;
        const CharacterSet named = named_set(negated);
        set.add(named, negated);
        no_range();
      } else {
        add_characters(set);
      }
    }
    if (!before.empty()) set = {.patterns = {"(?:" + before + set.pattern(false) + ")"}, .cased = set.cased};
    return set;
  }

  void no_range() const {
    if (looking_at("-") && !looking_at("-]")) fail("a '-' after a set of characters");
  }

  bool is_named_set() const {
    return in_[at_] == '\\' && at_ + 1 < in_.size() &&
           std::string_view("sSwWdDpP").find(in_[at_ + 1]) != std::string_view::npos;
  }

  CharacterSet posix_set(bool& negated) {
    negated = take("^");
    const size_t end = in_.find(":]", at_);
    const std::string_view name = in_.substr(at_, end == in_.npos ? 0 : end - at_);
    const auto* known = std::find_if(std::begin(kPosix), std::end(kPosix),
                                     [&](const Posix& posix) { return name == posix.name; });
    if (known == std::end(kPosix)) fail("a '[:' that opens no POSIX bracket");
    if (groups_.back().ignores_case && (name == "upper" || name == "lower"))
      fail("[:upper:] or [:lower:] under (?i)");
    at_ += name.size() + 2;
    negated ^= known->negated;
    return {.members = known->members, .cased = name != "space"};
  }

  void add_characters(CharacterSet& set) {
    const char32_t first = class_character();
    char32_t last = first;
    set.members += member(first);
    if (looking_at("-") && !looking_at("-]") && !looking_at("-&&")) {
      ++at_;
      if (looking_at("[") || (!done() && is_named_set())) fail("a '-' before a set of characters");
      last = class_character();
      if (last < first) fail("a range that ends before it begins");
      set.members += "-" + member(last);
    }
    set.cased |= last >= 'A';
  }

  char32_t class_character() {
    if (done()) fail("an unfinished class");
    if (in_[at_] != '\\') {
      const Utf8Step c = utf8_step(in_, at_);
      at_ += c.length;
      return c.value;
    }
    ++at_;
    if (done()) fail("a '\\' at its end");
    if (in_[at_] == 'x') return hex();
    constexpr std::string_view kNames = "abefnrtv", kMeant = "\a\b\x1b\f\n\r\t\v";
    const size_t named = kNames.find(in_[at_]);
    if (named == std::string_view::npos && (is_letter(in_[at_]) || is_digit(in_[at_])))
      fail(fmt::format("'\\{}' inside a class", in_[at_]));
    const Utf8Step c = utf8_step(in_, at_);
    at_ += c.length;
    return named == std::string_view::npos ? c.value : static_cast<char32_t>(kMeant[named]);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  std::vector<Group> groups_{1};
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace lariat::tok
