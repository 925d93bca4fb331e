#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer.h"

namespace lariat {

// Token ids separated by commas or whitespace, at least one. Throws Error naming `where` and the first word
// that is none.
std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where);

// The BOS that the model's texts begin with; unset when the tokenizer puts none there.
std::optional<int32_t> text_bos(const Tokenizer& tokenizer);

// A text's tokens, read as far as they are asked for: t[0], t[1], ... Those before forget() are gone.
class TokenSource {
 public:
  // Appends more tokens; false when there are none left.
  using Reader = std::function<bool(std::vector<int32_t>&)>;
  explicit TokenSource(Reader reader, int64_t max_tokens = 0);  // 0: no limit
  // Of tokens in memory.
  explicit TokenSource(std::vector<int32_t> tokens);

  bool has(int64_t index);  // reads on when needed
  // How many tokens there are, counted no further than `limit`.
  int64_t count(int64_t limit);
  std::span<const int32_t> range(int64_t begin, int64_t end) const;  // of tokens that has() has seen
  void forget(int64_t before);
  int64_t known() const { return first_ + static_cast<int64_t>(tokens_.size()); }
  bool ended() const { return ended_; }
  int64_t max_tokens() const { return max_tokens_; }

 private:
  Reader reader_;
  int64_t max_tokens_;
  int64_t first_ = 0;  // index of tokens_[0]
  std::vector<int32_t> tokens_;
  bool ended_ = false;
};

// The ids of a file of any size, without a BOS, encoded piece by piece in memory that does not grow with it.
// A number measured on bytes that every tokenizer would read as U+FFFD says nothing about a text, so they are
// an error.
class FileTokens {
 public:
  // "-": standard input. Throws Error naming the file when it cannot be read, is empty or is no text.
  FileTokens(std::filesystem::path file, const Tokenizer& tokenizer, size_t piece_bytes = size_t{1} << 16);
  FileTokens(const FileTokens&) = delete;  // in_ may point to opened_
  FileTokens& operator=(const FileTokens&) = delete;

  // A TokenSource::Reader. Throws Error naming the file and the offset of the first byte that is not UTF-8.
  bool read(std::vector<int32_t>& tokens);

  const std::string& name() const { return name_; }
  uintmax_t bytes() const { return bytes_; }  // 0: not known (a pipe)
  uintmax_t bytes_read() const { return bytes_read_; }

 private:
  void refuse_invalid(std::string_view piece, bool last);

  std::string name_;  // of the file, in errors
  StreamEncoder encoder_;
  std::ifstream opened_;
  std::istream* in_;
  std::string head_;  // the beginning of the text, which was looked at
  std::string piece_;
  std::string unfinished_;  // bytes of a character that goes on in the next piece
  uintmax_t bytes_ = 0, bytes_read_ = 0;
};

// How much of the text lies before token `position`, 0 ... 1: by tokens when their number is known, else by
// bytes.
double share_of_text(int64_t position, const TokenSource& source, const FileTokens& file);

}  // namespace lariat
