#pragma once
#include <functional>
#include <vector>

#include "engine/text/generate.h"

namespace lariat {

using TextProgressFn = std::function<void(int64_t done, int64_t total)>;

// Tokens, and the sequence whose cache holds them, but perhaps for the last one: what a model reads and
// writes on.
class TextContext {
 public:
  TextContext(Session& session, const Tokenizer& tokenizer);  // both must outlive it

  const std::vector<int32_t>& tokens() const { return tokens_; }
  const Sequence& sequence() const { return sequence_; }

  // Makes the cache hold `wanted`, whose common prefix with the present tokens stays, and writes what follows
  // (write_text). The cache may lack the answer's last token. progress: of the prefill, in which Interrupted
  // is thrown when options.generate.interrupted is set; later it ends the text.
  void write(std::vector<int32_t> wanted, const AnswerOptions& options, bool continues, Answer& answer,
             const TextFn& on_text, const TextProgressFn& progress = {});
  // Reads the token that nothing has read yet, if there is one and the context has room for it.
  void read_rest();
  // Forgets what follows the first `length` tokens.
  void truncate(int64_t length);
  void restore(SavedContext context);

 private:
  size_t keep_common(std::vector<int32_t> wanted);

  Session& session_;
  const Tokenizer& tokenizer_;
  Sequence sequence_;
  std::vector<int32_t> tokens_;
};

}  // namespace lariat
