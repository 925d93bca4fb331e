#pragma once
#include <list>

#include "engine/runtime/running_text.h"

namespace lariat {

// The only decode loop: continuous batching, requests join and leave between steps. On a CPU a request's
// tokens do not depend on other requests in steps of up to kSameBitsRows requests (Backend::linear). Guesses
// fill a step up to that number.
class Scheduler {
 public:
  static constexpr int64_t kSameBitsRows = 8;

  // at_once: limit of running requests. The session must outlive the scheduler.
  explicit Scheduler(Session& session, int64_t at_once = int64_t{1} << 40)
      : session_(session), at_once_(static_cast<size_t>(at_once)) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() { take_back(); }

  // Throws Error if no token is left to prefill or the text exceeds max_ctx.
  void add(Request request);
  // Decodes one token for all running requests, then prefills: all waiting requests together, or one chunk of
  // the next request while others decode. Returns whether requests remain. progress: prefilled tokens. Throws
  // Interrupted during a prefill, and exceptions of Session::forward and callbacks; the scheduler is then
  // unusable, and its sequences keep the computed tokens.
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
  Matrix ahead_;  // of the decode step that runs ahead, or whose guesses are verified
  int64_t prefilled_ = 0;
};

}  // namespace lariat
