#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "models/text/jinja_tree.h"
#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;  // the largest known template has 30 KB

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit_char(c);
}

// Converts line ends to \n, without the last one.
std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Failure(what, line_); }
  bool sees(std::string_view part) const { return source_.substr(at_, part.size()) == part; }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text), .value = {}});
  }

  std::string_view take(size_t n) {
    const std::string_view taken = source_.substr(at_, n);
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    at_ += taken.size();
    if (!taken.empty()) at_line_start_ = taken.back() == '\n';
    return taken;
  }
  void take_space() {
    const std::string_view rest = source_.substr(at_);
    take(rest.size() - strip(rest, nullptr, true, false).size());
  }

  // Takes "-", `mark` and following space, or "+" and `mark`, or `mark` (of a block also a line end).
  bool close(std::string_view mark, bool block) {
    if (sees(mark)) {
      take(mark.size());
      if (block && sees("\n")) take(1);
      return true;
    }
    if (is_any(at_, block ? "-+" : "-") && source_.substr(at_ + 1).starts_with(mark)) {
      const bool trims = source_[at_] == '-';
      take(1 + mark.size());
      if (trims) take_space();
      return true;
    }
    return false;
  }

  // Adds text up to a tag with the given sign, without the space removed by "-" and lstrip_blocks.
  void add_data(size_t end, char sign, bool block, bool line_start) {
    std::string_view text = source_.substr(at_, end - at_);
    std::string_view kept = text;
    if (sign == '-') {
      kept = strip(text, nullptr, false, true);
    } else if (sign != '+' && block) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool whole = newline != std::string_view::npos || line_start;
      if (whole && strip(text.substr(start), nullptr, true, false).empty()) kept = text.substr(0, start);
    }
    if (!kept.empty()) add(Token::Kind::kData, std::string(kept));
    take(text.size());
  }

  size_t count(size_t at, bool (*is)(char)) const {
    size_t n = 0;
    while (at + n < source_.size() && is(source_[at + n])) ++n;
    return n;
  }
  bool is_any(size_t at, std::string_view of) const {
    return at < source_.size() && of.find(source_[at]) != std::string_view::npos;
  }

  void data() {
    const bool line_start = at_line_start_;
    size_t end = at_;
    while ((end = source_.find('{', end)) != std::string_view::npos && !is_any(end + 1, "{%#")) ++end;
    if (end == std::string_view::npos) return add_data(source_.size(), '+', false, false);
    const char kind = source_[end + 1], sign = is_any(end + 2, "-+") ? source_[end + 2] : '\0';
    add_data(end, sign, kind != '{', line_start);
    const int opened = line_;
    take(sign ? 3 : 2);
    if (kind == '#') return comment(opened);
    add(kind == '%' ? Token::Kind::kOpen : Token::Kind::kPrintOpen, "");
    tag(kind == '%');
  }

  void comment(int opened) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) throw Failure("a comment without '#}'", opened);
    take(end - at_ - (end > at_ && is_any(end - 1, "-+") ? 1 : 0));
    close("#}", true);
  }

  void tag(bool block) {
    std::string open;
    const int opened = line_;
    for (;;) {
      if (open.empty() && close(block ? "%}" : "}}", block)) break;
      if (at_ >= source_.size()) throw Failure(block ? "'{%' without '%}'" : "'{{' without '}}'", opened);
      const char c = source_[at_];
      if (is_python_space(utf8_step(source_, at_).value)) {
        take_space();
      } else if (is_digit_char(c)) {
        number();
      } else if (is_name_char(c)) {
        const size_t n = count(at_, is_name_char);
        add(Token::Kind::kName, std::string(source_.substr(at_, n)));
        take(n);
        const size_t last = tokens_.size() - 1;
        if (tokens_[last].text == "raw" && tokens_[last - 1].kind == Token::Kind::kOpen)
          fail("{% raw %} is not supported");
      } else if (c == '\'' || c == '"') {
        quoted(c);
      } else {
        symbol(open);
      }
    }
    add(block ? Token::Kind::kClose : Token::Kind::kPrintClose, "");
  }

  void symbol(std::string& open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    const auto* two = std::find_if(std::begin(kTwo), std::end(kTwo), [&](auto part) { return sees(part); });
    const std::string text(two != std::end(kTwo) ? *two : source_.substr(at_, 1));
    if (text.size() == 1 &&
        std::string_view("+-/*%~[](){}><=.:|,;").find(text[0]) == std::string_view::npos) {
      fail(fmt::format("a stray '{}'", source_.substr(at_, utf8_step(source_, at_).length)));
    }
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const size_t i = kOpen.find(text); i != std::string_view::npos) open += kClose[i];
    if (kClose.find(text) != std::string_view::npos) {
      if (open.empty()) fail(fmt::format("a stray '{}'", text));
      if (open.back() != text[0]) fail(fmt::format("'{}' where '{}' is missing", text, open.back()));
      open.pop_back();
    }
    add(Token::Kind::kSymbol, text);
    take(text.size());
  }

  // 12 or 1.5, without hexadecimal, underscores or exponents. After a dot only integers: a.0.1
  void number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    size_t n = count(at_, is_digit_char);
    const bool point = !after_dot && at_ + n < source_.size() && source_[at_ + n] == '.';
    const size_t fraction = point ? count(at_ + n + 1, is_digit_char) : 0;
    if (fraction > 0) n += 1 + fraction;
    const std::string text(source_.substr(at_, n));
    const bool leading_zero = fraction == 0 && text[0] == '0' && text.find_first_not_of('0') != text.npos;
    if (leading_zero || (at_ + n < source_.size() && is_name_char(source_[at_ + n])))
      fail("only plain decimal numbers are supported");
    Token token{.kind = Token::Kind::kNumber, .line = line_, .text = text, .value = {}};
    const char* end = text.data() + text.size();
    int64_t whole = 0;
    double fractional = 0;
    const auto result = fraction > 0 ? std::from_chars(text.data(), end, fractional)
                                     : std::from_chars(text.data(), end, whole);
    if (result.ec != std::errc()) fail(fmt::format("the number {:.40} is too large", text));
    token.value = fraction > 0 ? real(fractional) : integer(whole);
    tokens_.push_back(std::move(token));
    take(n);
  }

  void quoted(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a text without its closing quote");
    add(Token::Kind::kText, unescape(source_.substr(at_ + 1, end - at_ - 1)));
    take(end + 1 - at_);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (const size_t known = kFrom.find(c); known != kFrom.npos) {
        out += kTo[known];
      } else if (width > 0) {
        append_utf8(out, code_point(text.substr(i + 1, width), width));
        i += width;
      } else if (is_digit_char(c) || c == 'N' || (c & 0x80)) {
        fail("an unsupported escape in a text");
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  char32_t code_point(std::string_view digits, size_t width) const {
    uint32_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (result.ec != std::errc() || result.ptr != digits.data() + width || digits.size() != width ||
        value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail("an escape in a text is not a character");
    return value;
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kMaxBytes)
    throw Failure(fmt::format("{} bytes, more than any template has", source.size()));
  int line = 1;
  for (size_t at = 0; at < source.size();) {
    const Utf8Step step = utf8_step(source, at);
    if (step.kind != Utf8Step::kChar) throw Failure("bytes that are not UTF-8", line);
    line += source[at] == '\n' ? 1 : 0;
    at += step.length;
  }
  const std::string text = normalize_lines(source);
  return Lexer(text).run();
}

}  // namespace lariat::jinja
