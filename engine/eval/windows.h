#pragma once
#include <optional>
#include <span>
#include <string>

#include "engine/eval/perplexity.h"

namespace lariat {

// What helps where a text is shorter than what is to be measured on it.
inline constexpr const char* kTextTooShort =
    "; use a longer text, a larger `max_tokens` or shorter windows (`max_ctx`, for a sweep `lengths`)";

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
