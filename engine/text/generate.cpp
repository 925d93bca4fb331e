#include "engine/text/generate.h"

#include <algorithm>
#include <utility>

#include "engine/stopwatch.h"

namespace lariat {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// A decode step: one token for each sequence.
Matrix forward_tokens(Session& session, std::span<Sequence* const> sequences, std::span<const int32_t> tokens,
                      bool drawn = false) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < sequences.size(); ++i)
    prompts.push_back({sequences[i], tokens.subspan(i, 1), Prompt::kLastToken, drawn});
  return session.forward(prompts);
}

// The same of the tokens that were drawn last, row i for sequence i.
Matrix forward_drawn(Session& session, std::span<Sequence* const> sequences) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < sequences.size(); ++i) tokens.push_back(drawn_token(i));
  return forward_tokens(session, sequences, tokens, true);
}

// A decode step of tokens that the host does not know yet. It is taken back unless it is kept.
class StepAhead {
 public:
  StepAhead(Session& session, std::span<Sequence* const> sequences)
      : session_(session), sequences_(sequences) {}
  StepAhead(const StepAhead&) = delete;
  StepAhead& operator=(const StepAhead&) = delete;
  ~StepAhead() { take_back(); }

  void run() {
    if (session_.can_take_back(sequences_)) logits_ = forward_drawn(session_, sequences_);
  }
  Matrix keep() { return std::exchange(logits_, Matrix()); }  // empty where it did not run
  void take_back() {
    if (!keep()) return;
    for (Sequence* sequence : sequences_) sequence->truncate(sequence->length() - 1);
  }

 private:
  Session& session_;
  std::span<Sequence* const> sequences_;
  Matrix logits_;
};

// Stands for the next token of a sequence of decode_loop that is done.
constexpr int32_t kEnd = -1;
// Queues a draw (Backend::draw) from the logits of the sequences of these indices, which are still going, f32
// [sequences, vocab] in backend memory.
using DrawFn = std::function<void(std::span<const size_t> live, const Matrix& logits)>;
// Writes what was drawn, or kEnd, for the same.
using ReadFn = std::function<void(std::span<const size_t> live, std::span<int32_t> next)>;

// The one decode loop: feeds each sequence its token of `next`, in one forward pass for all, and has `draw`
// and `read` choose the following ones, until every sequence has come to its end, after max_steps forward
// passes at the latest. A token of kEnd at the beginning: not at all. Where the backend is asynchronous, the
// step behind a draw is queued before the draw is read, so that a GPU need not wait for the host; where it
// was in vain, as one of its sequences has ended, it is taken back: tokens and caches are those of a loop
// that runs none ahead.
void decode_loop(Session& session, std::span<Sequence* const> sequences, std::vector<int32_t> next,
                 int64_t max_steps, const DrawFn& draw, const ReadFn& read) {
  const bool asynchronous = session.backend().traits().asynchronous;
  std::vector<size_t> live;  // of these, those that go on; next[j] is the token of sequence live[j]
  std::vector<Sequence*> batch;
  for (size_t i = 0; i < sequences.size(); ++i) live.push_back(i);
  const auto drop_ended = [&] {
    size_t kept = 0;
    batch.clear();
    for (size_t j = 0; j < live.size(); ++j) {
      if (next[j] == kEnd) continue;
      live[kept] = live[j];
      next[kept++] = next[j];
      batch.push_back(sequences[live[j]]);
    }
    live.resize(kept);
    next.resize(kept);
  };
  drop_ended();
  Matrix logits;  // of the step that is next, where it ran ahead
  for (int64_t steps = 1; !live.empty(); ++steps) {
    if (!logits) logits = forward_tokens(session, batch, next);
    draw(live, logits);
    StepAhead ahead(session, batch);
    if (asynchronous && steps < max_steps) ahead.run();
    read(live, next);
    const bool all_go_on = !contains(next, kEnd);
    logits = all_go_on ? ahead.keep() : Matrix();
    if (all_go_on) continue;
    ahead.take_back();
    drop_ended();
  }
}

// One text while it is written.
class Writer {
 public:
  Writer(Session& session, const Prompt& prompt, const GenerateOptions& options)
      : options_(options),
        backend_(session.backend()),
        sampler_(options.sampler, backend_),
        history_(options.cached.begin(), options.cached.end()),
        wanted(options.max_new_tokens) {
    history_.insert(history_.end(), prompt.tokens.begin(), prompt.tokens.end());
    // The last token wanted needs no logits after it; nor does one that fills the context.
    const int64_t max_ctx = session.options().max_ctx;
    const int64_t length = prompt.sequence->length() + std::ssize(prompt.tokens);
    if (max_ctx > 0) wanted = std::min(wanted, max_ctx - length + 1);
  }

  // Readies its logits, f32 [1, vocab], for a draw; returns the uniform number for it.
  double prepare(const Matrix& logits) {
    if (options_.logprobs) logprobs_.emplace(backend_, logits, *options_.logprobs);
    return sampler_.prepare(logits, history_);
  }

  // The token to feed after the logits that were drawn from, or kEnd.
  int32_t accept(int32_t drawn, const std::function<bool(int32_t)>& on_token) {
    const int32_t token = options_.whatever ? token_of(drawn) : Sampler::checked(drawn);
    const auto end = [&](StopReason reason) {
      result.stop_reason = reason;
      return kEnd;
    };
    if (contains(options_.eos_ids, token)) return end(StopReason::kEos);
    result.tokens.push_back(token);
    if (logprobs_) result.logprobs.push_back(logprobs_->of(token));
    history_.push_back(token);
    if (!on_token(token)) return end(StopReason::kStop);
    if (options_.interrupted != nullptr && options_.interrupted->load()) return end(StopReason::kInterrupted);
    return std::ssize(result.tokens) == wanted ? kEnd : token;
  }

 private:
  const GenerateOptions& options_;
  Backend& backend_;
  Sampler sampler_;
  std::vector<int32_t> history_;
  std::optional<Logprobs> logprobs_;  // of the last logits, where they are asked for

 public:
  int64_t wanted;  // tokens at most
  Generation result;
};

}  // namespace

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kEos:
      return "eos";
    case StopReason::kStop:
      return "stop";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "?";
}

std::vector<Generation> generate(Session& session, std::span<const Prompt> given,
                                 const GenerateOptions& options,
                                 const std::function<bool(size_t prompt, int32_t token)>& on_token,
                                 const Session::ProgressFn& progress) {
  Backend& backend = session.backend();
  std::vector<Prompt> prompts(given.begin(), given.end());
  std::vector<Sequence*> sequences;
  std::vector<Writer> writers;
  int64_t most = 0;
  for (Prompt& prompt : prompts) {
    sequences.push_back(prompt.sequence);
    most = std::max(most, writers.emplace_back(session, prompt, options).wanted);
  }
  auto start = Stopwatch::now();
  std::vector<int32_t> next(prompts.size(), kEnd);
  const auto draw_first = [&](size_t i, int64_t, const Matrix& logits) {
    if (writers[i].wanted <= 0) return;
    const double uniform = writers[i].prepare(logits);
    backend.draw(logits, options.sampler, {&uniform, 1});
    backend.read_drawn({&next[i], 1});
  };
  session.forward(prompts, draw_first, progress);
  backend.synchronize();
  const double prefill_seconds = seconds_since(start);

  start = Stopwatch::now();
  const auto accept = [&](size_t i, int32_t& token) {
    if (token < 0) session.report_not_finite();
    token = writers[i].accept(token, [&](int32_t id) { return on_token(i, id); });
  };
  for (size_t i = 0; i < writers.size(); ++i) {
    if (writers[i].wanted > 0) accept(i, next[i]);
  }
  std::vector<double> uniforms;
  decode_loop(
      session, sequences, std::move(next), most - 1,
      [&](std::span<const size_t> live, const Matrix& logits) {
        uniforms.clear();
        for (const size_t i : live)
          uniforms.push_back(writers[i].prepare(logits.row_range(std::ssize(uniforms), 1)));
        backend.draw(logits, options.sampler, uniforms);
      },
      [&](std::span<const size_t> live, std::span<int32_t> drawn) {
        backend.read_drawn(drawn);
        for (size_t j = 0; j < live.size(); ++j) {
          ++writers[live[j]].result.decode_steps;
          accept(live[j], drawn[j]);
        }
      });
  std::vector<Generation> results;
  for (Writer& writer : writers) {
    writer.result.prefill_seconds = prefill_seconds;
    writer.result.decode_seconds = seconds_since(start);
    results.push_back(std::move(writer.result));
  }
  return results;
}

Generation generate(Session& session, Sequence& sequence, std::span<const int32_t> prompt,
                    const GenerateOptions& options, const std::function<bool(int32_t)>& on_token,
                    const Session::ProgressFn& progress) {
  const Prompt one{&sequence, prompt};
  const auto on_any = [&](size_t, int32_t token) { return on_token(token); };
  return std::move(generate(session, {&one, 1}, options, on_any, progress).front());
}

}  // namespace lariat
