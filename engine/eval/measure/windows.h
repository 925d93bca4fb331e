#pragma once
#include <functional>
#include <span>
#include <string>

#include "engine/eval/measure/perplexity.h"

namespace lariat {

inline constexpr int64_t kMinCtx = 4;  // shortest window or context

// Suffix of an error about a text with fewer than `wanted` tokens: settings that fit. bos: BOS tokens per
// window; lengths: name of the length setting.
std::string fitting_settings(const TokenSource& text, int64_t wanted, int64_t bos, const char* lengths);

// Text tokens [begin, end), after a BOS if the model has one; [score_from, end) are scored.
struct Window {
  int64_t begin, end, score_from;
};

// s of PerplexityMethod.
int64_t window_stride(const PerplexityOptions& options, int64_t ctx);
// Windows of one length; for a growing context its stretches.
std::vector<Window> windows_of(const PerplexityOptions& options, int64_t ctx, const TokenSource& text);
// Whether angles between 1 and `length` tokens depend on the length.
bool follows_length(const RopeScaling& rope, const PositionMethod& method, int64_t length);
// End of the step after `length` cached tokens: `end`, or where a dynamic scale changes.
int64_t end_of_step(const Session& session, int64_t length, int64_t end);

// Throws Error, naming the text, if it is shorter than a length of options.ctx, a length is below 4 tokens or
// exceeds the memory for all `sessions`, or stride or step is below 1.
void check_windows(std::span<Session* const> sessions, const TokenSource& text,
                   const PerplexityOptions& options);

// Prefills tokens[sequence->length(), end). Tokens from score_from on are scored if their predecessor is part
// of this prefill.
struct Reading {
  Sequence* sequence;
  std::span<const int32_t> tokens;
  int64_t end, score_from;
};
// Prefills readings in batches. on_loss receives the reading's index, the token's position and its loss in
// nats. progress: prefilled tokens. Throws Interrupted between two passes.
void score(Session& session, std::span<const Reading> readings, const std::atomic<bool>* interrupted,
           const std::function<void(size_t reading, int64_t position, double loss)>& on_loss,
           const Session::ProgressFn& progress = {});

}  // namespace lariat
