#pragma once
#include <optional>
#include <vector>

#include "engine/runtime/lookup.h"
#include "engine/runtime/request.h"
#include "engine/stopwatch.h"

namespace lariat {

// A request of the scheduler, and its state.
struct RunningText {
  RunningText(Request given, Session& session);

  // Prepares logits, f32 [1, vocab], for a draw; returns the uniform number to draw with.
  double prepare(Backend& backend, const Matrix& logits);
  // Prepares and draws. Returns the token as Backend::read_drawn does.
  int32_t draw(Backend& backend, const Matrix& logits);
  // Appends the drawn token and tests the stopping criteria.
  void accept(Session& session, int32_t drawn);
  // Sets `guesses`: up to `most` next tokens, which truncating can undo completely.
  void guess(const Session& session, int64_t most);

  Request request;
  std::optional<Sequence> own{};  // used if the request has no sequence
  int64_t prompt_tokens, expected = 0, wanted;
  Sampler sampler;
  Lookup lookup{};
  std::vector<int32_t> guesses{};      // tokens after the last drawn one, verified by the step
  int64_t kept = 0;                    // length of the sequence without rejected guesses and steps ahead
  std::optional<Logprobs> logprobs{};  // last logits, if requested
  int32_t first_token = 0;             // sampled from the prompt's logits
  bool ended = false;
  Stopwatch::time_point start{};
  Generation result{};
};

}  // namespace lariat
