#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/model.h"

namespace lariat::python {

// A text that a session continues, step by step.
struct Continuation {
  explicit Continuation(std::shared_ptr<Runner> of) : runner(std::move(of)), scheduler(runner->session) {}
  std::shared_ptr<Runner> runner;
  Flag interrupted = false;
  Answer answer;
  std::string piece;               // not yet returned
  bool done = false, cut = false;  // cut: ended by another use of the session
  int64_t id = 0;
  Scheduler scheduler;
};

// A text and its cache. The cache may lack the last token.
struct SessionState {
  Runner& runner() const { return *shared; }

  std::shared_ptr<Runner> shared;  // outlives the sequence
  SavedContext context;
  std::shared_ptr<Continuation> writing{};

  // Ends the continuation. Its tokens stay.
  void settle();
};

class PyContinuation;

class PySession {
 public:
  using Make = std::function<SavedContext(Session& session, const Flag& interrupted)>;
  PySession(std::shared_ptr<OpenModel> model, const nb::kwargs& given, const Make& make);
  explicit PySession(std::shared_ptr<SessionState> state) : state_(std::move(state)) {}
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;
  ~PySession() { destroy_later(std::move(state_)); }

  bool closed() const { return !state_; }
  void close();
  size_t length();
  Array<int32_t, 1> tokens();
  nb::object append(nb::handle ids, const std::optional<std::string>& logits);
  nb::object logprobs(nb::handle ids, int64_t top);
  nb::dict trace(nb::handle ids, int64_t layer);
  std::unique_ptr<PySession> fork(std::optional<int64_t> length);
  void truncate(int64_t length);
  std::unique_ptr<PyContinuation> generate(nb::handle prompt, const nb::kwargs& given);
  nb::object set_rope(nb::handle scaling);
  nb::dict rope();
  Array<float, 3> keys(int64_t layer, bool rotated);
  Array<float, 3> values(int64_t layer);
  void save(const std::filesystem::path& file);

  // Runs `work` on the worker, for one thread at a time. Throws Error if closed or in use.
  using Work = std::function<void(SessionState& state, const Flag& interrupted)>;
  void use(const Work& work);
  void use(Flag& interrupted, const std::function<void(SessionState& state)>& work);

 private:
  const OpenModel& model() const;
  void check_layer(int64_t layer) const;

  std::shared_ptr<SessionState> state_;
  bool busy_ = false;  // guarded by the GIL
};

class PyContinuation {
 public:
  PyContinuation(PySession& session, std::shared_ptr<Continuation> writing)
      : session_(session), writing_(std::move(writing)) {}
  PyContinuation(const PyContinuation&) = delete;
  PyContinuation& operator=(const PyContinuation&) = delete;
  ~PyContinuation() { destroy_later(std::move(writing_)); }

  std::string next();
  nb::dict result();

 private:
  PySession& session_;  // nanobind keeps it alive
  std::shared_ptr<Continuation> writing_;
};

}  // namespace lariat::python
