#pragma once
#include <functional>
#include <span>
#include <string>

#include "engine/eval/measure/perplexity.h"

// Windows of a text and the losses of their tokens, shared by all text measurements.
namespace lariat {

inline constexpr int64_t kMinCtx = 4;  // the shortest window or context

// Suffix for errors about a text with fewer than `wanted` tokens: suggests fitting settings. bos: BOS tokens
// per window; lengths: name of the length setting.
std::string what_fits(const TokenSource& text, int64_t wanted, int64_t bos, const char* lengths);

// Text tokens [begin, end), after a BOS if the model has one. Tokens [score_from, end) are scored.
struct Window {
  int64_t begin, end, score_from;
};

// Stride s of PerplexityMethod, in tokens.
int64_t window_stride(const PerplexityOptions& options, int64_t ctx);
// Windows of one length over a text; for a growing context its stretches.
std::vector<Window> windows_of(const PerplexityOptions& options, int64_t ctx, const TokenSource& text);
// Whether angles between 1 and `length` tokens depend on the length, by the scaling or the method's stretch.
bool follows_length(const RopeScaling& rope, const PositionMethod& method, int64_t length);
// End of the growing-context step after `length` cached tokens: `end`, or where a dynamic scale changes.
int64_t end_of_step(const Session& session, int64_t length, int64_t end);

// Throws Error, naming the text, if the text is shorter than a length of options.ctx, a length is below 4
// tokens or exceeds the memory for all `sessions`, or stride or step is below 1.
void check_windows(std::span<Session* const> sessions, const TokenSource& text,
                   const PerplexityOptions& options);

// A sequence that prefills tokens[sequence->length(), end). Tokens from position score_from on are scored if
// their predecessor is part of this prefill.
struct Reading {
  Sequence* sequence;
  std::span<const int32_t> tokens;
  int64_t end, score_from;
};
// Prefills all readings in batches. on_loss receives the reading's index, the token's position and its loss
// in nats; progress the number of prefilled tokens. Throws Interrupted between two passes.
void score(Session& session, std::span<const Reading> readings, const std::atomic<bool>* interrupted,
           const std::function<void(size_t reading, int64_t position, double loss)>& on_loss,
           const Session::ProgressFn& progress = {});

}  // namespace lariat
