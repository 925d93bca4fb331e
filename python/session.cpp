#include "python/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/interrupt.h"
#include "kernels/to_host.h"

namespace lariat::python {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Appends to the cache and the tokens, or changes neither. `redo` cached tokens are computed again.
void run(SessionState& state, std::span<const int32_t> ids, int64_t redo, int64_t logits_from,
         const Flag& interrupted,
         const std::function<void(int64_t first, const Matrix& logits)>& on_logits = {}) {
  Sequence& sequence = state.context.sequence;
  std::vector<int32_t>& tokens = state.context.tokens;
  const auto before = static_cast<std::ptrdiff_t>(tokens.size());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  sequence.rewind(sequence.length() - redo);
  Session& session = state.runner().session;
  try {
    const auto rest = std::span(std::as_const(tokens)).subspan(static_cast<size_t>(sequence.length()));
    if (rest.empty()) return;
    const Session::LogitsFn each = [&](size_t, int64_t first, const Matrix& logits) {
      on_logits(first, logits);
    };
    forward(session, {&sequence, rest, logits_from}, on_logits ? each : Session::LogitsFn(),
            [&](int64_t) { stop_if(&interrupted); });
  } catch (...) {
    sequence.truncate(std::min<int64_t>(before, sequence.length()));
    tokens.resize(static_cast<size_t>(before));
    throw;
  }
}

void check_length(const SessionState& state, int64_t length) {
  const size_t most = state.context.tokens.size();
  if (length < 0 || length > static_cast<int64_t>(most))
    throw UsageError(fmt::format("`length`: {} of a session of {} tokens; use 0 to {}", length, most, most));
}

// Computes a token that the cache lacks.
void complete(SessionState& state, const Flag& interrupted) {
  const int64_t n = std::ssize(state.context.tokens);
  if (state.context.sequence.length() < n) run(state, {}, 0, n, interrupted);
}

}  // namespace

void SessionState::settle() {
  if (!writing) return;
  const std::shared_ptr<Continuation> ended = std::exchange(writing, nullptr);
  ended->cut = !ended->done;
  ended->scheduler.cancel(ended->id);
  const std::vector<int32_t>& written = ended->answer.generation.tokens;
  // After an interrupted prefill, keeps the tokens that are cached.
  if (written.empty()) context.tokens.resize(static_cast<size_t>(context.sequence.length()));
  context.tokens.insert(context.tokens.end(), written.begin(), written.end());
}

PySession::PySession(std::shared_ptr<OpenModel> model, const nb::kwargs& given, const Make& make) {
  Keywords keywords(given);
  const SessionOptions options = session_options(*model, keywords);
  keywords.finish();
  const auto warnings = model->warnings;
  compute([&](const Flag& interrupted) {
    auto runner = std::make_shared<Runner>(std::move(model), options);
    SavedContext context = make(runner->session, interrupted);
    state_ = std::make_shared<SessionState>(SessionState{std::move(runner), std::move(context)});
  });
  warnings->issue();
}

void PySession::close() {
  if (closed()) return;
  Flag interrupted = false;
  use(interrupted, [](SessionState& state) { state.settle(); });
  destroy_later(std::move(state_));
}

const OpenModel& PySession::model() const {
  if (!state_) throw UsageError("the session is closed; open another");
  return *state_->runner().model;
}

void PySession::use(Flag& interrupted, const std::function<void(SessionState& state)>& work) {
  const auto warnings = model().warnings;
  if (busy_) throw UsageError("the session is in use by another thread; use one session per thread");
  busy_ = true;
  try {
    compute(interrupted, [&] { work(*state_); });
  } catch (...) {
    busy_ = false;
    throw;
  }
  busy_ = false;
  warnings->issue();
}

void PySession::use(const Work& work) {
  Flag interrupted = false;
  use(interrupted, [&](SessionState& state) {
    state.settle();
    complete(state, interrupted);
    work(state, interrupted);
  });
}

size_t PySession::length() {
  size_t n = 0;
  use([&](SessionState& state, const Flag&) { n = state.context.tokens.size(); });
  return n;
}

Array<int32_t, 1> PySession::tokens() {
  std::vector<int32_t> ids;
  use([&](SessionState& state, const Flag&) { ids = state.context.tokens; });
  return to_array(std::move(ids));
}

nb::object PySession::append(nb::handle object, const std::optional<std::string>& logits) {
  const std::vector<int32_t> ids = to_ids(object);
  if (logits && *logits != "last" && *logits != "all")
    throw UsageError("`logits`: found \"" + *logits + "\"; use \"last\", \"all\" or None");
  if (logits) check_prompt(ids);
  const bool all = logits == "all";
  const auto vocabulary = static_cast<size_t>(model().engine.model.spec.vocab_size);
  std::vector<float> rows;
  use([&](SessionState& state, const Flag& interrupted) {
    Session& session = state.runner().session;
    const int64_t from = all ? 0 : std::ssize(ids) - (logits ? 1 : 0);
    if (!logits) return run(state, ids, 0, from, interrupted);
    run(state, ids, 0, from, interrupted, [&](int64_t, const Matrix& found) {
      const std::vector<float> host = to_host(session.backend(), found);
      if (!std::ranges::all_of(host, [](float x) { return std::isfinite(x); })) session.report_not_finite();
      rows.insert(rows.end(), host.begin(), host.end());
    });
  });
  if (!logits) return nb::none();
  if (all) return nb::cast(to_array<float, 2>(std::move(rows), {ids.size(), vocabulary}));
  return nb::cast(to_array(std::move(rows)));
}

nb::object PySession::logprobs(nb::handle object, int64_t top) {
  const std::vector<int32_t> ids = to_ids(object);
  const int64_t vocabulary = model().engine.model.spec.vocab_size, n = std::ssize(ids);
  if (top < 0 || top > vocabulary)
    throw UsageError(fmt::format("`top`: found {}; use 0 to {}", top, vocabulary));
  const auto width = static_cast<size_t>(top);
  std::vector<double> found(ids.size(), kNaN), values(ids.size() * width, kNaN);
  std::vector<int32_t> tokens(ids.size() * width, -1);
  use([&](SessionState& state, const Flag& interrupted) {
    // The token before the first id is computed again, for its logits.
    const int64_t redo = state.context.tokens.empty() ? 0 : 1;
    if (n == 0) return;
    run(state, ids, redo, 0, interrupted, [&](int64_t first, const Matrix& logits) {
      for (int64_t row = 0; row < logits.rows; ++row) {
        const int64_t i = first + row + 1 - redo;
        if (i >= n) return;
        const auto at = static_cast<size_t>(i);
        const TokenScore score =
            Logprobs(state.runner().session.backend(), logits.row_range(row, 1), top).of(ids[at]);
        found[at] = score.logprob;
        if (std::isnan(score.logprob)) state.runner().session.report_not_finite();
        for (size_t k = 0; k < score.top.size(); ++k) {
          tokens[at * width + k] = score.top[k].token;
          values[at * width + k] = score.top[k].logprob;
        }
      }
    });
  });
  if (top == 0) return nb::cast(to_array(std::move(found)));
  const std::array shape = {ids.size(), width};
  return nb::make_tuple(to_array(std::move(found)), to_array<int32_t, 2>(std::move(tokens), shape),
                        to_array<double, 2>(std::move(values), shape));
}

nb::dict PySession::trace(nb::handle object, int64_t layer) {
  const std::vector<int32_t> ids = to_ids(object);
  check_prompt(ids);
  check_layer(layer);
  std::map<std::string, std::pair<size_t, std::vector<float>>> found;
  const std::string prefix = fmt::format("layers.{}.", layer);
  use([&](SessionState& state, const Flag& interrupted) {
    Session& session = state.runner().session;
    session.observe([&](const std::string& name, int64_t cols, std::span<const float> rows) {
      if (!name.starts_with(prefix)) return;
      auto& [width, values] = found[name.substr(prefix.size())];
      width = static_cast<size_t>(cols);
      values.insert(values.end(), rows.begin(), rows.end());
    });
    try {
      run(state, ids, 0, std::ssize(ids), interrupted);
    } catch (...) {
      session.observe({});
      throw;
    }
    session.observe({});
  });
  nb::dict result;
  for (auto& [name, rows] : found) {
    const std::array shape = {rows.second.size() / rows.first, rows.first};
    result[name.c_str()] = to_array<float, 2>(std::move(rows.second), shape);
  }
  return result;
}

std::unique_ptr<PySession> PySession::fork(std::optional<int64_t> length) {
  std::shared_ptr<SessionState> copy;
  use([&](SessionState& state, const Flag&) {
    const auto& [sequence, tokens, note] = state.context;
    const int64_t n = length.value_or(std::ssize(tokens));
    check_length(state, n);
    copy = std::make_shared<SessionState>(SessionState{
        state.shared, {state.runner().session.fork(sequence, n), {tokens.begin(), tokens.begin() + n}}});
  });
  return std::make_unique<PySession>(std::move(copy));
}

void PySession::truncate(int64_t length) {
  use([&](SessionState& state, const Flag&) {
    check_length(state, length);
    state.context.sequence.truncate(std::min(length, state.context.sequence.length()));
    state.context.tokens.resize(static_cast<size_t>(length));
  });
}

std::unique_ptr<PyContinuation> PySession::generate(nb::handle prompt, const nb::kwargs& given) {
  Keywords keywords(given);
  AnswerOptions options = answer_options(model(), keywords);
  keywords.finish();
  std::vector<int32_t> wanted;
  use([&](SessionState& state, const Flag&) { wanted = state.context.tokens; });
  if (!prompt.is_none()) wanted = to_prompt(model(), wanted, prompt);
  check_prompt(wanted);
  std::shared_ptr<Continuation> ours;
  use([&](SessionState& state, const Flag&) {
    SavedContext& context = state.context;
    ours = std::make_shared<Continuation>(state.shared);
    options.generate.interrupted = &ours->interrupted;
    // The last token is computed again, for its logits.
    const int64_t cached = context.sequence.length();
    context.sequence.rewind(std::clamp<int64_t>(std::ssize(wanted) - 1, 0, cached));
    Continuation* const to = ours.get();
    try {
      to->id = write_text(to->scheduler, state.runner().model->tokenizer(),
                          {.tokens = wanted,
                           .sequence = &context.sequence,
                           .on_end = [to](const Generation&) { to->done = true; }},
                          options, /*continues=*/true, to->answer, [to](const std::string& piece) {
                            to->piece += piece;
                            return true;
                          });
    } catch (...) {
      complete(state, Flag(false));
      throw;
    }
    context.tokens = wanted;
    state.writing = ours;
  });
  return std::make_unique<PyContinuation>(*this, std::move(ours));
}

std::string PyContinuation::next() {
  std::string piece;
  session_.use(writing_->interrupted, [&](SessionState& state) {
    if (writing_->cut) throw UsageError("the text ended as its session was used; read it to its end first");
    while (!writing_->done && writing_->piece.empty()) writing_->scheduler.step();
    piece = std::exchange(writing_->piece, "");
    if (!writing_->done || state.writing != writing_) return;
    state.settle();
    if (writing_->answer.generation.error) std::rethrow_exception(writing_->answer.generation.error);
  });
  if (piece.empty()) throw nb::stop_iteration();
  return piece;
}

nb::dict PyContinuation::result() {
  Answer copy;
  const auto read = [&] { copy = writing_->answer; };
  if (session_.closed()) {
    read();
  } else {
    session_.use(writing_->interrupted, [&](SessionState&) { read(); });
  }
  return to_python(copy);
}

}  // namespace lariat::python
