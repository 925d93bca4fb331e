#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/text/tokenizer.h"

namespace lariat {

// The text of tokens as they come, until one of the stop strings appears in it, holding back only the tokens
// in which one may have begun. As in transformers' StopStringCriteria a stop string is looked for in what
// every token spells (Tokenizer::bytes_of), special tokens among them, and ends the text with the token that
// completes it.
class StopFilter {
 public:
  // `decoder` makes the text, behind whatever it was given before. `tokenizer` must outlive this.
  StopFilter(const Tokenizer& tokenizer, StreamDecoder decoder, std::vector<std::string> stops);

  bool stopped() const { return stopped_; }

  // Text that may be shown now.
  std::string push(int32_t id);
  // Returns the rest of the text, once no more can come.
  std::string flush();

 private:
  size_t longest_beginning() const;
  std::string release(size_t bytes);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  // Tokens that were not shown, how many bytes each spells, and these bytes.
  std::vector<std::pair<int32_t, size_t>> waiting_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lariat
