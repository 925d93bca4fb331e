#pragma once
#include <list>
#include <optional>
#include <vector>

#include "engine/runtime/request.h"
#include "engine/stopwatch.h"

namespace lariat {

// The one decode loop: continuous batching of requests, which join and leave between steps. On a CPU the
// tokens of a request are those of the request alone, if a step has up to 8 requests (Backend::linear).
class Scheduler {
 public:
  // at_once: the most requests that run; further ones wait. The session must outlive the scheduler.
  explicit Scheduler(Session& session, int64_t at_once = int64_t{1} << 40)
      : session_(session), at_once_(static_cast<size_t>(at_once)) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() { take_back(); }

  // The request joins with the next step. Throws Error when no token is left to prefill, or for a text longer
  // than max_ctx.
  void add(Request request);
  // One decode step of all running requests, then a prefill: of all waiting requests in common passes, or,
  // while others decode, of one chunk of the next request. progress: tokens prefilled so far, of all
  // requests. Returns whether requests remain. Throws as Session::forward and callbacks do, and Interrupted
  // during a prefill; the scheduler is then of no further use, and its sequences hold the tokens computed so
  // far.
  bool step(const Session::ProgressFn& progress = {});
  void run(const Session::ProgressFn& progress = {}) {
    while (step(progress)) {
    }
  }

 private:
  // A request with its state.
  struct Text {
    Text(Request given, Session& session);
    double prepare(Backend& backend, const Matrix& logits);
    void accept(Session& session, int32_t drawn);

    Request request;
    std::optional<Sequence> own{};  // where the request brings no sequence
    int64_t prompt_tokens, expected = 0, wanted;
    Sampler sampler;
    std::optional<Logprobs> logprobs{};  // of the last logits, if requested
    int32_t first_token = 0;             // drawn from the logits of the prompt
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
  Matrix ahead_;  // logits of a decode step of running_ that ran ahead
  int64_t prefilled_ = 0;
};

}  // namespace lariat
