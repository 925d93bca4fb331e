#pragma once
#include <list>
#include <optional>
#include <vector>

#include "engine/runtime/request.h"
#include "engine/stopwatch.h"

namespace lariat {

// The only decode loop: continuous batching, requests join and leave between steps. On a CPU a request's
// tokens do not depend on other requests in steps of up to 8 requests (Backend::linear).
class Scheduler {
 public:
  // at_once: limit of running requests; others wait. The session must outlive the scheduler.
  explicit Scheduler(Session& session, int64_t at_once = int64_t{1} << 40)
      : session_(session), at_once_(static_cast<size_t>(at_once)) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() { take_back(); }

  // Queues a request for the next step. Throws Error if no token is left to prefill or the text exceeds
  // max_ctx.
  void add(Request request);
  // Decodes one token for all running requests, then prefills: all waiting requests together, or one chunk of
  // the next request while others decode. progress: prefilled tokens of all requests. Returns whether
  // requests remain. Throws Interrupted during a prefill, and exceptions of Session::forward and of
  // callbacks; the scheduler is then unusable, and its sequences keep the computed tokens.
  bool step(const Session::ProgressFn& progress = {});
  void run(const Session::ProgressFn& progress = {}) {
    while (step(progress)) {
    }
  }

 private:
  struct Text {
    Text(Request given, Session& session);
    double prepare(Backend& backend, const Matrix& logits);
    void accept(Session& session, int32_t drawn);

    Request request;
    std::optional<Sequence> own{};  // used if the request has no sequence
    int64_t prompt_tokens, expected = 0, wanted;
    Sampler sampler;
    std::optional<Logprobs> logprobs{};  // last logits, if requested
    int32_t first_token = 0;             // sampled from the prompt's logits
    bool ended = false;
    Stopwatch::time_point start{};
    Generation result{};
  };
  using Texts = std::list<Text>;

  Sequence new_sequence(const Text& text);
  Prompt next_piece(Text& text, bool whole);
  void prefill(const Session::ProgressFn& progress);
  void decode();
  Matrix forward_tokens(bool drawn);
  void take_back();
  void end_texts();

  Session& session_;
  size_t at_once_;
  Texts waiting_, running_;
  Matrix ahead_;  // logits of the decode step that runs ahead
  int64_t prefilled_ = 0;
};

}  // namespace lariat
