#pragma once
#include <optional>
#include <vector>

#include "engine/runtime/draft.h"
#include "engine/runtime/lookup.h"
#include "engine/runtime/request.h"
#include "engine/stopwatch.h"

namespace lariat {

struct RunningText {
  RunningText(Request given, Session& session, int64_t number);

  // Returns the uniform number for a draw from logits, f32 [1, vocab].
  double prepare(Backend& backend, const Matrix& logits);
  // Returns the token as Backend::read_drawn does.
  int32_t draw(Backend& backend, const Matrix& logits);
  // Appends the drawn token and tests the stopping criteria.
  void accept(Session& session, int32_t drawn);
  // Sets `guesses`: up to `most` tokens, which truncating can undo.
  void guess(const Session& session, int64_t most);
  // Receives requested logits of the prompt from index `first` on; draws the first token from the last row.
  void take_logits(Backend& backend, int64_t first, const Matrix& logits);
  std::span<const int32_t> prompt() const {
    return std::span(request.tokens).first(static_cast<size_t>(prompt_tokens));
  }
  // Whether all tokens but the last drawn one are cached.
  bool cached() const;
  // Frees the pages. The tokens stay, and are cached again when the text restarts.
  void suspend();
  void end(StopReason reason);
  // An exception of `work` ends the text, and no other.
  template <class Work>
  void attempt(const Work& work) {
    try {
      if (!ended) work();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  void fail(std::exception_ptr error) { result.error = std::move(error), ended = true; }

  Request request;
  int64_t id, last_neighbour = 0;  // latest request that was there when this one started
  std::optional<Sequence> own{};   // if the request has no sequence
  int64_t prompt_tokens, expected = 0, wanted;
  int64_t logits_from;  // first token of the prompt whose logits are still wanted
  Sampler sampler;
  Lookup lookup{};
  std::optional<Draft> draft{};
  std::vector<int32_t> guesses{};      // tokens after the last drawn one
  int64_t accepted_length = 0;         // of the sequence
  std::optional<Logprobs> logprobs{};  // last logits, if requested
  int32_t first_token = 0;             // sampled from the prompt's logits
  bool started = false, ended = false;
  Stopwatch::time_point start{};
  Generation result{};
};

}  // namespace lariat
