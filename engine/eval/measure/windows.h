#pragma once
#include <functional>
#include <span>
#include <string>

#include "engine/eval/measure/perplexity.h"

// The windows of a text, and the losses of the tokens that are read: all measurements of a text share these.
namespace lariat {

inline constexpr int64_t kMinCtx = 4;  // the shortest window or context

// Ends an error about a text that is shorter than the `wanted` tokens of a measurement: says what would fit.
// `bos`: what a window holds beside them; `lengths`: the setting of the windows' lengths.
std::string what_fits(const TokenSource& text, int64_t wanted, int64_t bos, const char* lengths);

// Tokens [begin, end) of the text, after a BOS if the model has one; [score_from, end) are scored.
struct Window {
  int64_t begin, end, score_from;
};

// The tokens that a sliding window of ctx moves: s of PerplexityMethod.
int64_t window_stride(const PerplexityOptions& options, int64_t ctx);
// The windows of one length over a text; of a growing context, its stretches.
std::vector<Window> windows_of(const PerplexityOptions& options, int64_t ctx, const TokenSource& text);
// Where the step of a growing context ends that begins with `length` tokens in the cache: at most at `end`,
// and where a dynamic scale moves.
int64_t end_of_step(const Session& session, int64_t length, int64_t end);

// Throws Error, naming the text, when the text is shorter than any of options.ctx, when one of these has
// fewer than 4 tokens or is longer than the memory for all `sessions` allows, and when the stride or the step
// is less than 1.
void check_windows(std::span<Session* const> sessions, const TokenSource& text,
                   const PerplexityOptions& options);

// A sequence that goes on to read `tokens`, which begin with those that it holds, up to `end`. Every token
// from position `score_from` on is scored that has a token before it among those that are read now.
struct Reading {
  Sequence* sequence;
  std::span<const int32_t> tokens;
  int64_t end, score_from;
};
// Reads all of them in common passes. on_loss gets the index of the reading, the token's position and its
// loss in nats; progress the number of tokens read. Throws Interrupted between two passes.
void score(Session& session, std::span<const Reading> readings, const std::atomic<bool>* interrupted,
           const std::function<void(size_t reading, int64_t position, double loss)>& on_loss,
           const Session::ProgressFn& progress = {});

}  // namespace lariat
