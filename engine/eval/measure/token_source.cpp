#include "engine/eval/measure/token_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <utility>

#include "kernels/counted.h"
#include "kernels/error.h"
#include "models/io/text_file.h"
#include "models/text/unicode.h"

namespace lariat {

std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where) {
  std::vector<int32_t> tokens;
  const char* separators = ", \t\r\n";
  for (size_t at = text.find_first_not_of(separators); at != std::string_view::npos;
       at = text.find_first_not_of(separators, at)) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0) {
      throw Error(fmt::format("{}: '{}' is not a token id; give numbers separated by commas or spaces", where,
                              text.substr(at, std::min<size_t>(end - at, 40))));
    }
    tokens.push_back(id);
    at = end;
  }
  if (tokens.empty()) throw Error(where + ": no token ids; give numbers separated by commas or spaces");
  return tokens;
}

std::vector<int32_t> text_bos(const Tokenizer& tokenizer) {
  return tokenizer.adds_bos() ? tokenizer.prefix() : std::vector<int32_t>();
}

TokenSource::TokenSource(std::vector<int32_t> tokens, int64_t max_tokens, std::string name)
    : tokens_(std::move(tokens)), max_tokens_(max_tokens), name_(std::move(name)) {
  if (max_tokens > 0) tokens_.resize(static_cast<size_t>(std::min(size(), max_tokens)));
}

std::span<const int32_t> TokenSource::range(int64_t begin, int64_t end) const {
  return std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

std::string TokenSource::size_in_words() const {
  const std::string tokens = counted(size(), "token");
  return name_ + (size() == max_tokens_ ? ": `max_tokens` takes " + tokens + " of it" : ": has " + tokens);
}

std::vector<int32_t> TokenSource::after_bos(std::vector<int32_t> bos, int64_t begin, int64_t end) const {
  const auto more = range(begin, end);
  bos.insert(bos.end(), more.begin(), more.end());
  return bos;
}

namespace {

class TextBeginning {
 public:
  explicit TextBeginning(const std::filesystem::path& file) : name_(input_name(file)) {
    if (file == "-") {
      in_ = &standard_input();
    } else {
      std::error_code ec;
      if (std::filesystem::is_directory(file, ec)) throw Error(name_ + ": is a folder; name a text file");
      opened_.open(file, std::ios::binary);
      if (!opened_) throw Error(name_ + ": cannot be read; check the name and its permissions");
    }
    read(kTextHead);
    refuse_lfs_pointer(text_, name_);
    mark_ = text_.size() - without_bom(text_, name_).size();
    checked_ = mark_;
    if (mark_ == text_.size()) throw Error(name_ + ": empty file; name a file with text");
  }

  // First `bytes` without byte order mark or incomplete last character.
  std::string_view first(size_t bytes) {
    read(bytes);
    checked_ = end_of_utf8(text_, checked_, !ended(), name_);
    return std::string_view(text_).substr(mark_, checked_ - mark_);
  }
  bool ended() const { return !*in_; }

 private:
  void read(size_t bytes) {
    char piece[1 << 16];
    while (*in_ && text_.size() < bytes) {
      in_->read(piece, static_cast<std::streamsize>(std::min(sizeof piece, bytes - text_.size())));
      text_.append(piece, static_cast<size_t>(in_->gcount()));
    }
    if (in_->bad()) throw Error(name_ + ": reading failed");
  }

  std::string name_;
  std::ifstream opened_;
  std::istream* in_ = &opened_;
  std::string text_;    // read so far
  size_t mark_ = 0;     // size of the byte order mark
  size_t checked_ = 0;  // validated as UTF-8
};

}  // namespace

TokenSource read_tokens(const std::filesystem::path& file, const Tokenizer& tokenizer, int64_t max_tokens) {
  TextBeginning text(file);
  const auto wanted = static_cast<size_t>(max_tokens);
  const std::string name = input_name(file);
  if (max_tokens <= 0) return TokenSource(tokenizer.encode(text.first(std::string::npos), false), 0, name);
  for (size_t bytes = kTextHead + 16 * std::min(wanted, size_t{1} << 40);; bytes *= 2) {
    std::vector<int32_t> tokens = tokenizer.encode(text.first(bytes), false);
    // The last ids of a prefix may differ from the whole text's, so twice the number is required.
    if (text.ended() || tokens.size() / 2 >= wanted) return TokenSource(std::move(tokens), max_tokens, name);
  }
}

void check_text(const std::filesystem::path& file) {
  std::error_code ec;
  const auto status = std::filesystem::status(file, ec);
  const bool read_once = exists(status) && !is_regular_file(status) && !is_directory(status);
  if (file != "-" && !read_once) const TextBeginning beginning(file);
}

}  // namespace lariat
