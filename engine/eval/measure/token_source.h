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

// Token ids separated by commas or white space. Throws Error naming `where` and the first invalid word.
std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where);

// Empty if the tokenizer adds no BOS.
std::vector<int32_t> text_bos(const Tokenizer& tokenizer);

// Tokens of a text: t[0], t[1], ...
class TokenSource {
 public:
  // max_tokens: use only the first N tokens; 0: all. name: for errors.
  explicit TokenSource(std::vector<int32_t> tokens, int64_t max_tokens = 0, std::string name = "the text");

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> range(int64_t begin, int64_t end) const;
  std::vector<int32_t> after_bos(std::vector<int32_t> bos, int64_t begin, int64_t end) const;
  int64_t max_tokens() const { return max_tokens_; }
  const std::string& name() const { return name_; }
  std::string size_in_words() const;  // "book.txt: has 9 tokens"

 private:
  std::vector<int32_t> tokens_;
  int64_t max_tokens_;
  std::string name_;
};

// Tokenizes a text file ("-": standard input) without BOS; reads only a part if it is much longer than
// `max_tokens`. Throws Error naming the file if it is unreadable, empty or not UTF-8, which tokenizers would
// replace by U+FFFD.
TokenSource read_tokens(const std::filesystem::path& file, const Tokenizer& tokenizer, int64_t max_tokens);

// Throws like read_tokens for an invalid start of the file, before the slow load of a model. Skips pipes.
void check_text(const std::filesystem::path& file);

}  // namespace lariat
