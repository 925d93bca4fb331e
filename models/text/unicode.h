#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lariat {

// One step through bytes that may not be UTF-8.
struct Utf8Step {
  enum Kind {
    kChar,        // a whole character of `length` bytes, its code point in `value`
    kInvalid,     // `length` bytes that begin no character (the longest possible prefix)
    kIncomplete,  // the text ends inside a character that is valid so far
  };
  Kind kind;
  uint32_t length;
  char32_t value;
};

// `at` must be below text.size(). Overlong forms, surrogates and values above U+10FFFF are invalid (Unicode
// 15, table 3-7).
Utf8Step utf8_step_beyond_ascii(std::string_view text, size_t at);
inline Utf8Step utf8_step(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  return byte < 0x80 ? Utf8Step{Utf8Step::kChar, 1, byte} : utf8_step_beyond_ascii(text, at);
}

bool is_utf8(std::string_view text);

// End of the whole characters of `text` from byte `at` on. more_follows: another may begin at the end. Throws
// Error for bytes that are not UTF-8.
size_t end_of_utf8(std::string_view text, size_t at, bool more_follows, const std::string& name);
// Reads a text without a byte order mark. Throws Error like read_file, without_bom and end_of_utf8.
std::string read_text(const std::filesystem::path& file, uint64_t max_bytes);

void append_utf8(std::string& out, char32_t c);

// `pattern` must not be empty.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

int64_t count_chars(std::string_view text);  // of UTF-8, each at its first byte

// Largest n <= at that does not cut a character of the (valid) text.
size_t char_start(std::string_view text, size_t at);

// Removes characters that satisfy goes(character) from the ends of a valid text.
template <class Goes>
std::string_view strip(std::string_view text, const Goes& goes, bool left, bool right) {
  while (left && !text.empty()) {
    const size_t n = utf8_step(text, 0).length;
    if (!goes(text.substr(0, n))) break;
    text.remove_prefix(n);
  }
  while (right && !text.empty()) {
    const size_t start = char_start(text, text.size() - 1);
    if (!goes(text.substr(start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

// Converts bytes arriving in pieces to valid UTF-8. Invalid bytes become U+FFFD: one per longest invalid
// prefix (Rust's from_utf8_lossy, hence HF tokenizers), one per byte (SentencePiece), or one for every byte
// of the whole if any is bad (HF's ByteFallback).
class Utf8Assembler {
 public:
  enum class Replace { kPerPrefix, kPerByte, kWhole };
  explicit Utf8Assembler(Replace replace = Replace::kPerPrefix) : replace_(replace) {}

  // Keeps an unfinished character (up to 3 bytes), for kWhole everything.
  void push(std::string_view bytes, std::string& out);
  // An unfinished character becomes U+FFFD.
  void finish(std::string& out);
  size_t held() const { return pending_.size(); }

 private:
  void convert(std::string_view bytes, bool final, std::string& out);
  Replace replace_;
  std::string pending_;
};

// Replaces invalid bytes by U+FFFD.
std::string valid_utf8(std::string_view bytes);

// One line for a terminal: control characters become spaces, invalid bytes U+FFFD.
std::string printable(std::string_view text);

bool is_white_space(char32_t c);
bool is_python_space(char32_t c);  // whitespace of str.isspace() and strip()
bool is_word_char(char32_t c);  // \w of Unicode TR 18: Alphabetic, marks, decimal digits, connectors, joiners
bool is_numeric(char32_t c);    // general category N*

// Python's str.lower() of valid UTF-8.
std::string lower_case(std::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be valid UTF-8. Linear even for long runs of combining marks.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace lariat
