#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer.h"

namespace lariat {

// Parses token ids separated by commas or white space, at least one. Throws Error naming `where` and the
// first invalid word.
std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where);

// BOS tokens of the model's texts; empty if the tokenizer adds none.
std::vector<int32_t> text_bos(const Tokenizer& tokenizer);

// The tokens of a text: t[0], t[1], ...
class TokenSource {
 public:
  // max_tokens: use only the first N tokens; 0: all. name: text name for errors.
  explicit TokenSource(std::vector<int32_t> tokens, int64_t max_tokens = 0, std::string name = "the text");

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> range(int64_t begin, int64_t end) const;
  std::vector<int32_t> behind_bos(std::vector<int32_t> bos, int64_t begin, int64_t end) const;
  int64_t max_tokens() const { return max_tokens_; }
  const std::string& name() const { return name_; }
  std::string size_in_words() const;  // for errors: "book.txt: has 9 tokens"

 private:
  std::vector<int32_t> tokens_;
  int64_t max_tokens_;
  std::string name_;
};

// Tokenizes a text file ("-": standard input) without BOS. A file much longer than `max_tokens` is read only
// in part. Throws Error naming the file if it is unreadable, empty or not UTF-8. The error gives the first
// invalid byte: tokenizers would replace it by U+FFFD and falsify the measurement.
TokenSource read_tokens(const std::filesystem::path& file, const Tokenizer& tokenizer, int64_t max_tokens);

// Throws like read_tokens if the start of the file is invalid, before the slow load of a model. Skips
// standard input and pipes.
void check_text(const std::filesystem::path& file);

}  // namespace lariat
