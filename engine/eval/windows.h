#pragma once
#include <optional>
#include <span>
#include <string>

#include "engine/eval/perplexity.h"

namespace lariat {

// Tokens [begin, end) of the text, after a BOS if the model has one; [score_from, end) are scored.
struct Window {
  int64_t begin, end, score_from;
};

// The windows of one length, one after the other, over a text whose length shows itself on the way. See
// PerplexityMethod, of which only sliding and chunks have windows.
class Windows {
 public:
  Windows(const PerplexityOptions& options, int64_t ctx);
  std::optional<Window> next(TokenSource& text);  // unset: there are none left

 private:
  bool sliding_;
  int64_t bos_, ctx_, holds_, step_;
  int64_t index_ = 0, scored_ = 0;
  bool ended_ = false;
};

// Throws Error, naming `text_name`, when the text is shorter than a window (`what`, in the message) of any of
// options.ctx, when a window has fewer than 4 tokens or is longer than the memory for all `sessions` allows,
// and when the stride is less than 1.
void check_windows(std::span<Session* const> sessions, TokenSource& text, const std::string& text_name,
                   const PerplexityOptions& options, const std::string& what = "window");

}  // namespace lariat
