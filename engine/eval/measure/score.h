#pragma once
#include <atomic>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/contexts/saved_context.h"
#include "engine/runtime/logprobs.h"
#include "engine/runtime/session.h"
#include "models/text/tokenizer.h"

namespace lariat {

struct ScoredText {
  std::vector<int32_t> tokens;
  int64_t from = 0;                  // the first one that is scored; at least 1
  size_t bytes = 0;                  // of the continuation
  std::vector<TokenScore> scores{};  // of the tokens from there on: Scorer::score
};

// A prompt and what follows it, as lm-evaluation-harness makes ids of them (TemplateLM._encode_pair): white
// space at the prompt's end belongs to the continuation, whose ids are those that encode(prompt +
// continuation) has beyond the number of encode(prompt). A prompt of nothing else is the BOS, or the end of a
// text where there is none. bos: a text begins with one; behind `context`, whose tokens come first, none
// does. Throws Error when the continuation has no token of its own.
ScoredText scored_text(std::span<const int32_t> context, const Tokenizer& tokenizer, std::string_view prompt,
                       std::string_view continuation, bool bos);

// Scores many texts of which many begin alike, each as if it stood alone: its tokens before the last are
// read, on the RoPE frequencies of that length. What texts of one call have in common is read once, and what
// they have in common with the last call's longest; but only where a dynamic scale is the same, so that it
// changes no more than how a prompt is split (Session::forward).
class Scorer {
 public:
  // context: what all texts begin with, or a new sequence and no tokens. top: how many of the likeliest
  // tokens each TokenScore names. Session and context must outlive it.
  Scorer(Session& session, const SavedContext& context, int64_t top,
         const std::atomic<bool>* interrupted = nullptr)
      : session_(session), context_(context), top_(top), interrupted_(interrupted) {}
  void score(std::span<ScoredText> texts);  // throws Interrupted

  int64_t tokens() const { return tokens_; }  // before the last ones, of all texts so far
  int64_t read() const { return read_; }      // those of them that were read; the others were there

 private:
  struct Branch;
  void run(std::span<ScoredText* const> texts);
  void read_all(std::span<Branch> branches, std::deque<Sequence>& sequences);

  Session& session_;
  const SavedContext& context_;
  int64_t top_;
  const std::atomic<bool>* interrupted_;
  std::optional<SavedContext> last_;
  int64_t tokens_ = 0, read_ = 0;
};

}  // namespace lariat
