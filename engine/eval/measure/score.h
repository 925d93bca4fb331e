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
  int64_t from = 0;                  // first scored token; at least 1
  size_t bytes = 0;                  // of the continuation
  std::vector<TokenScore> scores{};  // of tokens from `from` on
};

// Tokenizes as lm-evaluation-harness does (TemplateLM._encode_pair). White space at the prompt's end moves to
// the continuation, whose ids are encode(prompt + continuation) without the first encode(prompt).size() ids.
// An empty prompt becomes the BOS, else the EOS. bos: texts start with a BOS, except after a nonempty
// `context`, whose tokens come first. Throws Error if the continuation adds no token.
ScoredText scored_text(std::span<const int32_t> context, const Tokenizer& tokenizer, std::string_view prompt,
                       std::string_view continuation, bool bos);

// Scores texts that share prefixes, each independently. All tokens but a text's last are prefilled with the
// RoPE frequencies of that length. Common prefixes within a call, and with the longest text of the last call,
// are prefilled once if the dynamic scale is equal. Sharing changes results no more than splitting a prompt
// (Session::forward).
class Scorer {
 public:
  // context: common prefix of all texts, possibly empty. top: number of top tokens per TokenScore. Session
  // and context must outlive the Scorer.
  Scorer(Session& session, const SavedContext& context, int64_t top,
         const std::atomic<bool>* interrupted = nullptr)
      : session_(session), context_(context), top_(top), interrupted_(interrupted) {}
  void score(std::span<ScoredText> texts);  // throws Interrupted

  int64_t tokens() const { return tokens_; }  // without each text's last token
  int64_t read() const { return read_; }      // prefilled tokens; the others were shared

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
