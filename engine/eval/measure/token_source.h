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

// Token ids separated by commas or whitespace, at least one. Throws Error naming `where` and the first word
// that is none.
std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where);

// The BOS that the model's texts begin with; unset when the tokenizer puts none there.
std::vector<int32_t> text_bos(const Tokenizer& tokenizer);

// The tokens of a text: t[0], t[1], ...
class TokenSource {
 public:
  // `max_tokens`: how many of them are taken; 0: all. `name`: of the text, for errors.
  explicit TokenSource(std::vector<int32_t> tokens, int64_t max_tokens = 0, std::string name = "the text");

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> range(int64_t begin, int64_t end) const;
  std::vector<int32_t> behind_bos(std::vector<int32_t> bos, int64_t begin, int64_t end) const;
  int64_t max_tokens() const { return max_tokens_; }
  const std::string& name() const { return name_; }
  std::string size_in_words() const;  // for errors: "book.txt: has 9 tokens", or that `max_tokens` takes 9

 private:
  std::vector<int32_t> tokens_;
  int64_t max_tokens_;
  std::string name_;
};

// The ids of a text file ("-": standard input), without a BOS. The text is encoded whole; of a file that
// holds far more than `max_tokens` only the beginning is read. Throws Error naming the file when it cannot be
// read, is empty or is no text: a number measured on bytes that every tokenizer would read as U+FFFD says
// nothing, so the first byte that is not UTF-8 is named.
TokenSource read_tokens(const std::filesystem::path& file, const Tokenizer& tokenizer, int64_t max_tokens);

// Throws as read_tokens does where the file is missing, empty or no text from its first bytes on: before a
// model is opened, which may take long. Standard input and pipes are left as they are.
void check_text(const std::filesystem::path& file);

}  // namespace lariat
