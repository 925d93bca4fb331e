#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/text/tokenizer.h"

namespace lariat {

// Decodes tokens until a stop string appears; holds back tokens in which one may begin. As in transformers'
// StopStringCriteria, stop strings match bytes of all tokens (Tokenizer::bytes_of), including special tokens,
// and the completing token ends the text.
class StopFilter {
 public:
  // `decoder` continues after its earlier tokens. `tokenizer` must outlive the filter.
  StopFilter(const Tokenizer& tokenizer, StreamDecoder decoder, std::vector<std::string> stops);

  bool stopped() const { return stopped_; }

  // Returns text that can be shown now.
  std::string push(int32_t id);
  // Returns the remaining text.
  std::string flush();

 private:
  size_t longest_beginning() const;
  std::string release(size_t bytes);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  // Tokens not yet shown with their number of bytes, and these bytes.
  std::vector<std::pair<int32_t, size_t>> waiting_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lariat
