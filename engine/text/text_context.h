#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/session.h"
#include "engine/text/generate.h"
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

// The tokens of `text` after `context`. A text begins once: the tokenizer's prefix (Tokenizer::prefix) stands
// at its beginning at most once (`bos`: it is put there), and never after a context.
std::vector<int32_t> encode_behind(std::span<const int32_t> context, const Tokenizer& tokenizer,
                                   std::string_view text, bool bos);

// How many tokens both begin with.
int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

using TextFn = std::function<bool(const std::string& piece)>;  // false: write no more
using TextProgressFn = std::function<void(int64_t done, int64_t total)>;

// A text that is to go on: `sequence` holds its first tokens, as many and the same as those of its
// neighbours.
struct TextTask {
  Sequence* sequence;
  std::span<const int32_t> tokens;
};

// Writes behind several texts in common steps, each as it is written alone (generate()). `goes_on`: as one
// text with its tokens, so that a leading space of the first new word is kept. The answers are filled as they
// are written: an exception leaves what there was by then. `progress` is called during the prefill, in which
// Interrupted is thrown when options.generate.interrupted is set; later it ends the texts.
void write_texts(Session& session, const Tokenizer& tokenizer, std::span<const TextTask> tasks,
                 const AnswerOptions& options, bool goes_on, std::span<Answer> answers,
                 const std::function<bool(size_t text, const std::string& piece)>& on_text = {},
                 const TextProgressFn& progress = {});

// Tokens, and the sequence whose cache holds them, but perhaps for the last one: what a model reads and
// writes on.
class TextContext {
 public:
  TextContext(Session& session, const Tokenizer& tokenizer);  // both must outlive it

  const std::vector<int32_t>& tokens() const { return tokens_; }
  const Sequence& sequence() const { return sequence_; }

  // Makes the cache hold `wanted`, of which the tokens that it has in common with what is there stay, and
  // writes what follows: write_texts(). The answer's last token may be one that nothing has read yet.
  void write(std::vector<int32_t> wanted, const AnswerOptions& options, bool goes_on, Answer& answer,
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
