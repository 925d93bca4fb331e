#include "models/text/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "kernels/error.h"
#include "models/io/text_file.h"

namespace lariat {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length by lead byte (0: invalid), and range of the second byte.
struct Lead {
  uint32_t length;
  uint8_t low, high;
};

Lead lead_of(uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  return {0, 0, 0};
}

void decompose(std::string_view text, int options, std::vector<utf8proc_int32_t>& out) {
  int last_boundclass = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (step.kind != Utf8Step::kChar) throw Error("text to normalise: not UTF-8; a bug, please report it");
    i += step.length;
    utf8proc_int32_t buffer[32];  // the longest decomposition (U+FDFA) has 18
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.value), buffer, 32,
                                           static_cast<utf8proc_option_t>(options), &last_boundclass);
    if (n < 0 || n > 32) throw Error("text to normalise: utf8proc failed; a bug, please report it");
    out.insert(out.end(), buffer, buffer + n);
  }
}

// Canonical ordering by a stable sort of each run of marks; utf8proc's pass is quadratic in the run's length.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  auto it = code_points.begin();
  while (it != code_points.end()) {
    const auto first =
        std::find_if(it, code_points.end(), [&](utf8proc_int32_t c) { return combining_class(c) != 0; });
    it = std::find_if(first, code_points.end(), [&](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(first, it, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
  }
}

void normalize_part(std::string_view text, NormalForm form, std::string& out) {
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  decompose(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), code_points);
  order_marks(code_points);
  auto count = static_cast<utf8proc_ssize_t>(code_points.size());
  if (compose) {
    count = utf8proc_normalize_utf32(code_points.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(code_points[static_cast<size_t>(i)]));
  }
}

// A sigma is final after a letter with case and not before one (Unicode 15, table 3-17); letters are sought
// past marks and punctuation inside words (Case_Ignorable).
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  const auto at = [&](size_t byte) { return static_cast<utf8proc_int32_t>(utf8_step(text, byte).value); };
  const auto is_ignorable = [](utf8proc_int32_t c) {
    const auto kind = utf8proc_category(c);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019;
  };
  const auto has_case = [](utf8proc_int32_t c) {
    const auto kind = utf8proc_category(c);
    return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
  };
  do {
    if (begin == 0) return false;
    begin = char_start(text, begin - 1);
  } while (is_ignorable(at(begin)));
  while (end < text.size() && is_ignorable(at(end))) end += utf8_step(text, end).length;
  return has_case(at(begin)) && (end == text.size() || !has_case(at(end)));
}

}  // namespace

Utf8Step utf8_step_beyond_ascii(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t b0 = byte(at);
  const Lead lead = lead_of(b0);
  if (lead.length == 0) return {Utf8Step::kInvalid, 1, 0};
  char32_t value = b0 & (0x7Fu >> lead.length);
  for (uint32_t k = 1; k < lead.length; ++k) {
    if (at + k == text.size()) return {Utf8Step::kIncomplete, k, 0};
    const uint8_t b = byte(at + k);
    const uint8_t low = k == 1 ? lead.low : 0x80, high = k == 1 ? lead.high : 0xBF;
    if (b < low || b > high) return {Utf8Step::kInvalid, k, 0};
    value = (value << 6) | (b & 0x3Fu);
  }
  return {Utf8Step::kChar, lead.length, value};
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8Step::kChar) return false;
    at += step.length;
  }
  return true;
}

size_t end_of_utf8(std::string_view text, size_t at, bool more_follows, const std::string& name) {
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind == Utf8Step::kIncomplete && more_follows) break;
    if (step.kind != Utf8Step::kChar) {
      throw Error(fmt::format(
          "{}: byte {} is not UTF-8; {}", name, at,
          text.starts_with("\x1F\x8B") ? "the file is compressed by gzip; decompress it (gunzip)"
          : text.starts_with("%PDF-")  ? "the file is a PDF; extract its text (pdftotext)"
                                       : "convert the text (for Latin-1: iconv -f latin1 -t utf-8)"));
    }
    at += step.length;
  }
  return at;
}

std::string read_text(const std::filesystem::path& file, uint64_t max_bytes) {
  std::string text = read_file(file, max_bytes);
  const std::string name = input_name(file);
  const size_t begin = text.size() - without_bom(text, name).size();
  end_of_utf8(text, begin, /*more_follows=*/false, name);
  return text.erase(0, begin);
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t hit; (hit = text.find(pattern, at)) != std::string_view::npos; at = hit + pattern.size()) {
    out.append(text.substr(at, hit - at));
    out.append(content);
  }
  out.append(text.substr(at));
  return out;
}

int64_t count_chars(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

size_t char_start(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  if (replace_ == Replace::kWhole) {
    pending_ += bytes;
    return;
  }
  if (pending_.empty()) return convert(bytes, false, out);
  const std::string joined = std::move(pending_) + std::string(bytes);
  pending_.clear();
  convert(joined, false, out);
}

void Utf8Assembler::finish(std::string& out) {
  const std::string rest = std::move(pending_);
  pending_.clear();
  if (replace_ != Replace::kWhole || is_utf8(rest)) return convert(rest, true, out);
  for (size_t i = 0; i < rest.size(); ++i) out += kReplacement;
}

void Utf8Assembler::convert(std::string_view bytes, bool final, std::string& out) {
  size_t good = 0;  // bytes[good, i) is valid and not yet copied
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Step step = utf8_step(bytes, i);
    if (step.kind == Utf8Step::kChar) {
      i += step.length;
      continue;
    }
    out.append(bytes.substr(good, i - good));
    if (step.kind == Utf8Step::kIncomplete && !final) {
      pending_ = bytes.substr(i);
      return;
    }
    out += kReplacement;
    i += replace_ == Replace::kPerByte ? 1 : step.length;
    good = i;
  }
  out.append(bytes.substr(good));
}

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Assembler assembler;
  assembler.push(bytes, out);
  assembler.finish(out);
  return out;
}

std::string printable(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string out;
  for (size_t at = 0; at < valid.size();) {
    const Utf8Step step = utf8_step(valid, at);
    const bool control = step.value < 0x20 || (step.value >= 0x7F && step.value < 0xA0);
    out += control ? " " : valid.substr(at, step.length);
    at += step.length;
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_word_char(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  // L*, M*, Nd and Nl are consecutive; of N*, only No is not part of a word.
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
  // Connectors, alphabetic symbols (circled and squared letters) and the two joiners.
  return category == UTF8PROC_CATEGORY_PC || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

std::string lower_case(std::string_view text) {
  constexpr utf8proc_int32_t kDottedI = 0x130, kSigma = 0x3A3;
  std::string lower;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + utf8_step(text, at).length;
    const auto c = static_cast<utf8proc_int32_t>(utf8_step(text, at).value);
    const bool final = c == kSigma && is_final_sigma(text, at, end);
    lower += c == kDottedI ? "i" : "";
    append_utf8(lower, c == kDottedI ? 0x307 : final ? 0x3C2 : static_cast<char32_t>(utf8proc_tolower(c)));
  }
  return lower;
}

std::string normalize(std::string_view text, NormalForm form) {
  // NFC keeps characters below U+0300 (UTF-8 lead bytes below 0xCC); every form keeps ASCII. Only runs of
  // other characters are normalised, each with the preceding character, which may compose with the first.
  const uint8_t unchanged_below = form == NormalForm::kNfc ? 0xCC : 0x80;
  const auto changes = [&](char c) { return static_cast<uint8_t>(c) >= unchanged_below; };
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  while (done < text.size()) {
    const auto rest = text.begin() + static_cast<std::ptrdiff_t>(done);
    size_t begin = static_cast<size_t>(std::find_if(rest, text.end(), changes) - text.begin());
    if (begin == text.size()) break;
    size_t end = begin;
    while (end < text.size() && changes(text[end])) end += utf8_step(text, end).length;
    if (begin > done) begin = char_start(text, begin - 1);
    out.append(text.substr(done, begin - done));
    normalize_part(text.substr(begin, end - begin), form, out);
    done = end;
  }
  return out.append(text.substr(done));
}

}  // namespace lariat
