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

  // Returns the request's id. Throws Error if no token is left to prefill or the text exceeds max_ctx.
  int64_t add(Request request);
  // Ends a request with kInterrupted and frees its pages: now, or after the current step if a callback calls.
  // Ignores ended requests.
  void cancel(int64_t id);
  // Decodes one token for all running requests, then prefills up to prefill_chunk tokens of waiting requests,
  // in order of arrival. Returns whether requests remain. A failing request ends with its error
  // (Generation::error, Interrupted during its prefill); the other requests and the session continue. When
  // pages run out, the youngest request frees its pages, waits and is computed again. progress: prefilled
  // tokens; only its exceptions are thrown.
  bool step(const Session::ProgressFn& progress = {});
  // Steps until all requests have ended. The first error of a request or of its on_end cancels the other
  // requests and is thrown.
  void run(const Session::ProgressFn& progress = {});

 private:
  using Text = RunningText;
  using Texts = std::list<Text>;
  struct Part {  // of a pass
    Text* text;
    Prompt prompt;
  };
  using Parts = std::vector<Part>;

  Sequence new_sequence(const Text& text);
  bool fits(const Text& text) const;
  void start(Text& text);
  Prompt next_piece(Text& text, int64_t most);
  Parts next_pieces();
  void prefill();
  void prefill(Parts& parts);
  void join(Texts::iterator text);
  Parts next_rows(bool drawn);
  void decode();
  void run_ahead();
  void verify(const Matrix& logits);
  Matrix pass(Parts& parts, const Session::LogitsFn& on_logits = {});
  void leave_out(Parts& parts, const std::exception_ptr& error, bool may_repeat);
  bool suspend_youngest();
  void keep_pages_free();
  void take_back();
  void end_texts();

  Session& session_;
  size_t at_once_;
  Texts waiting_, running_;      // waiting_ in order of arrival
  Matrix ahead_;                 // of the decode step that runs ahead, or whose guesses are verified
  Parts parts_;                  // of the last decode step
  std::vector<int32_t> tokens_;  // of parts_
  int64_t prefilled_ = 0, last_id_ = 0;
  bool stepping_ = false;
  std::exception_ptr first_error_;
};

}  // namespace lariat
