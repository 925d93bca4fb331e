#pragma once
#include <optional>
#include <vector>

#include "engine/runtime/draft.h"
#include "engine/runtime/lookup.h"
#include "engine/runtime/request.h"
#include "engine/stopwatch.h"

namespace lariat {

struct RunningText {
  RunningText(Request given, Session& session);

  // Returns the uniform number for a draw from logits, f32 [1, vocab].
  double prepare(Backend& backend, const Matrix& logits);
  // Returns the token as Backend::read_drawn does.
  int32_t draw(Backend& backend, const Matrix& logits);
  // Appends the drawn token and tests the stopping criteria.
  void accept(Session& session, int32_t drawn);
  // Sets `guesses`: up to `most` tokens, which truncating can undo.
  void guess(const Session& session, int64_t most);

  Request request;
  std::optional<Sequence> own{};  // if the request has no sequence
  int64_t prompt_tokens, expected = 0, wanted;
  Sampler sampler;
  Lookup lookup{};
  std::optional<Draft> draft{};
  std::vector<int32_t> guesses{};      // tokens after the last drawn one
  int64_t kept = 0;                    // sequence length without rejected guesses and steps ahead
  std::optional<Logprobs> logprobs{};  // last logits, if requested
  int32_t first_token = 0;             // sampled from the prompt's logits
  bool ended = false;
  Stopwatch::time_point start{};
  Generation result{};
};

}  // namespace lariat
