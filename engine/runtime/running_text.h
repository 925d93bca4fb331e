#pragma once
#include <optional>
#include <vector>

#include "engine/runtime/lookup.h"
#include "engine/runtime/request.h"
#include "engine/stopwatch.h"

namespace lariat {

// A request of a scheduler with its state.
struct RunningText {
  RunningText(Request given, Session& session);

  // Prepares the text's logits, f32 [1, vocab], for a draw; returns the uniform number for it.
  double prepare(Backend& backend, const Matrix& logits);
  // prepare, then the draw. Returns the token as Backend::read_drawn does.
  int32_t draw(Backend& backend, const Matrix& logits);
  // Takes the token that was drawn; it may end the text.
  void accept(Session& session, int32_t drawn);
  // Sets guesses: up to `most` tokens that may follow, which can be truncated again without a trace.
  void guess(const Session& session, int64_t most);

  Request request;
  std::optional<Sequence> own{};  // where the request brings no sequence
  int64_t prompt_tokens, expected = 0, wanted;
  Sampler sampler;
  Lookup lookup{};
  std::vector<int32_t> guesses{};      // tokens that the step verifies, after the last drawn one
  int64_t kept = 0;                    // length of the sequence without rejected guesses and steps ahead
  std::optional<Logprobs> logprobs{};  // of the last logits, if requested
  int32_t first_token = 0;             // drawn from the logits of the prompt
  bool ended = false;
  Stopwatch::time_point start{};
  Generation result{};
};

}  // namespace lariat
