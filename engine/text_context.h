#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/saved_context.h"
#include "engine/session.h"
#include "models/text/tokenizer.h"

namespace lariat {

// The settings that a text is written with.
struct AnswerOptions {
  GenerateOptions generate;
  std::vector<std::string> stop;  // texts that end it and are no part of it
};

struct Answer {
  std::string text;
  Generation generation;
  int64_t reused = 0, read = 0;  // tokens before it that were in the cache, and that were not
};

using TextFn = std::function<bool(const std::string& piece)>;  // false: write no more
using TextProgressFn = std::function<void(int64_t done, int64_t total)>;

// Tokens, and the sequence whose cache holds them: what a model reads and writes on.
class TextContext {
 public:
  TextContext(Session& session, const Tokenizer& tokenizer);  // both must outlive it

  const std::vector<int32_t>& tokens() const { return tokens_; }
  const Sequence& sequence() const { return sequence_; }

  // Makes the cache hold `wanted`, of which the tokens that it has in common with what is there stay, and
  // writes what follows. `goes_on`: as one text with `wanted`, so that a leading space of the first new word
  // is kept. `answer` is filled as the text is written: an exception leaves what there was by then. Its last
  // token may be one that nothing has read yet; tokens() ends before it. `progress` is called during the
  // prefill, in which Interrupted is thrown when options.generate.interrupted is set; later it ends the text.
  void write(std::vector<int32_t> wanted, const AnswerOptions& options, bool goes_on, Answer& answer,
             const TextFn& on_text, const TextProgressFn& progress = {});
  // Reads the end of an answer that nothing has read yet, if the context has room for it.
  void read_rest(const Answer& answer);
  // Forgets what follows the first `length` tokens.
  void truncate(int64_t length);
  void restore(SavedContext context);

 private:
  std::span<const int32_t> keep_common(std::vector<int32_t> wanted);

  Session& session_;
  const Tokenizer& tokenizer_;
  Sequence sequence_;
  std::vector<int32_t> tokens_;
};

}  // namespace lariat
