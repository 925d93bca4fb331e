#pragma once
#include <list>

#include "engine/runtime/running_text.h"

namespace lariat {

// The one decode loop: continuous batching of requests, which join and leave between steps. On a CPU each
// request gets the tokens of a separate run if a step has up to kSameBitsRows requests (Backend::linear).
// Guesses fill a step up to that number of rows.
class Scheduler {
 public:
  static constexpr int64_t kSameBitsRows = 8;

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
  using Text = RunningText;
  using Texts = std::list<Text>;

  Sequence new_sequence(const Text& text);
  Prompt next_piece(Text& text, bool whole);
  void prefill(const Session::ProgressFn& progress);
  void decode();
  Matrix forward_tokens(bool drawn);
  void verify(const Matrix& logits);
  void take_back();
  void end_texts();

  Session& session_;
  size_t at_once_;
  Texts waiting_, running_;
  Matrix ahead_;  // logits of a decode step of running_ that ran ahead, or whose guesses are being verified
  int64_t prefilled_ = 0;
};

}  // namespace lariat
