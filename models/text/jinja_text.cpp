#include "models/text/jinja_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "models/text/jinja_value.h"
#include "models/text/unicode.h"

namespace lariat::jinja {
namespace {

// The character at `at`, which moves behind it.
char32_t next_char(std::string_view text, size_t& at) {
  const Utf8Step step = utf8_step(text, at);
  at += step.length;
  return step.value;
}

size_t previous_char(std::string_view text, size_t end) { return char_start(text, end - 1); }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}
bool is_cased_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9);
}
bool is_cased(char32_t c) {
  return is_cased_upper(c) || is_cased_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

[[noreturn]] void fail_case(char32_t c) {
  throw Failure(fmt::format("the other case of U+{:04X} is not known here; leave the text's case as it is",
                            static_cast<uint32_t>(c)));
}

// Where Unicode's SpecialCasing has upper cases of more than one character, and a few beside them that have
// not.
bool has_long_upper(char32_t c) {
  return c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3B0 || c == 0x587 || (c >= 0x1E96 && c <= 0x1E9A) ||
         (c >= 0x1F50 && c <= 0x1F56) || (c >= 0x1F80 && c <= 0x1FFC) || (c >= 0xFB00 && c <= 0xFB17);
}

void append_upper(std::string& out, char32_t c, bool as_title) {
  if (c == 0xDF) {
    out += as_title ? "Ss" : "SS";
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  const auto upper_code = static_cast<char32_t>(as_title ? utf8proc_totitle(code) : utf8proc_toupper(code));
  if (has_long_upper(c)) fail_case(c);
  append_utf8(out, upper_code);
}

// `before` and `after`: whether a letter stands there, which decides about the sigma at the end of a word.
void append_lower(std::string& out, char32_t c, bool before, bool after) {
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else if (c == 0x3A3) {
    append_utf8(out, before && !after ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool cased_at(std::string_view text, size_t at) {
  return at < text.size() && is_cased(utf8_step(text, at).value);
}

// The first character after which `boundary` is true in title case, the others in lower case.
template <class Boundary>
std::string recase(std::string_view text, const Boundary& starts_word) {
  std::string out;
  char32_t before = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    if (starts_word(before)) {
      append_upper(out, c, true);
    } else {
      append_lower(out, c, is_cased(before), cased_at(text, at));
    }
    before = c;
  }
  return out;
}

template <class Test>
bool every_char(std::string_view text, const Test& test) {
  for (size_t at = 0; at < text.size();) {
    if (!test(next_char(text, at))) return false;
  }
  return !text.empty();
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

int64_t count_chars(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::vector<std::string_view> chars(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    next_char(text, at);
    all.push_back(text.substr(start, at - start));
  }
  return all;
}

size_t find_in(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* at = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

std::string_view strip(std::string_view text, const std::string* set, bool left, bool right) {
  const auto goes = [&](std::string_view part) {
    return set ? set->find(part) != std::string::npos : is_python_space(utf8_step(part, 0).value);
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const size_t n = utf8_step(text, begin).length;
    if (!goes(text.substr(begin, n))) break;
    begin += n;
  }
  while (right && begin < end) {
    const size_t start = previous_char(text, end);
    if (!goes(text.substr(start, end - start))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> split(std::string_view text, const std::string* separator, int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    size_t from = 0;
    for (int64_t n = 0; limit < 0 || n < limit; ++n) {
      const size_t at = find_in(text, *separator, from);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(from, at - from));
      from = at + separator->size();
    }
    parts.push_back(text.substr(from));
    return parts;
  }
  text = strip(text, nullptr, true, false);
  while (!text.empty()) {
    size_t end = 0;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    while (end < text.size() && !is_python_space(utf8_step(text, end).value))
      end += utf8_step(text, end).length;
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), nullptr, true, false);
  }
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, const std::string* separator,
                                          int64_t limit) {
  if (limit < 0) return split(text, separator, -1);
  std::vector<std::string_view> parts;
  if (!separator) text = strip(text, nullptr, false, true);
  while (separator || !text.empty()) {
    size_t start = 0, end = text.size();
    if (separator) {
      const size_t at = static_cast<int64_t>(parts.size()) < limit ? text.rfind(*separator) : text.npos;
      if (at == text.npos) {
        parts.push_back(text);
        break;
      }
      start = at + separator->size();
      end = at;
    } else if (static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    } else {
      for (start = text.size(); start > 0; start = previous_char(text, start)) {
        if (is_python_space(utf8_step(text, previous_char(text, start)).value)) break;
      }
      end = strip(text.substr(0, start), nullptr, false, true).size();
    }
    parts.push_back(text.substr(start));
    text = text.substr(0, end);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_char(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_upper(out, next_char(text, at), false);
  return out;
}

std::string lower(std::string_view text) {
  return recase(text, [](char32_t) { return false; });
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = utf8_step(text, 0).length;
  std::string out;
  append_upper(out, utf8_step(text, 0).value, true);
  return out + lower(text.substr(first));
}

std::string title(std::string_view text) {
  return recase(text, [](char32_t before) { return !is_cased(before); });
}

std::string filter_title(std::string_view text) {
  return recase(text, [](char32_t before) {
    return before == 0 || is_python_space(before) ||
           (before < 0x80 && std::strchr("-({[<", static_cast<int>(before)));
  });
}

bool is_digit(std::string_view text) {
  return every_char(text, [](char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
  });
}

bool is_alpha(std::string_view text, bool or_digit) {
  return every_char(text, [&](char32_t c) {
    const auto kind = category(c);
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) || (or_digit && is_numeric(c));
  });
}

bool is_space(std::string_view text) { return every_char(text, is_python_space); }

bool is_upper(std::string_view text) {
  bool any = false;
  return every_char(text,
                    [&](char32_t c) {
                      any = any || is_cased_upper(c);
                      return !is_cased(c) || is_cased_upper(c);
                    }) &&
         any;
}

bool is_lower(std::string_view text) {
  bool any = false;
  return every_char(text,
                    [&](char32_t c) {
                      any = any || is_cased_lower(c);
                      return !is_cased(c) || is_cased_lower(c);
                    }) &&
         any;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string text_repr(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_char(text, at);
    const auto kind = category(c);
    const bool hidden = kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_ZS;  // Z* and C*
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c == ' ' || !hidden) {
      out += text.substr(start, at - start);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      out += c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                         : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return out + quote;
}

}  // namespace lariat::jinja
