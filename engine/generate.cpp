#include "engine/generate.h"

#include <algorithm>
#include <utility>

#include "engine/interrupt.h"
#include "engine/stopwatch.h"

namespace lariat {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
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
    if (session_.can_take_back(sequences_)) logits_ = session_.decode_drawn(sequences_);
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
// Queues a draw (Backend::draw) from the logits of the sequences that are still going, f32 [sequences, vocab]
// in backend memory.
using DrawFn = std::function<void(const Matrix& logits)>;
// Writes what was drawn, or kEnd, for the sequences of these indices.
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
    if (!logits) logits = session.decode(batch, next);
    draw(logits);
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

Generation generate(Session& session, Sequence& sequence, std::span<const int32_t> prompt,
                    const GenerateOptions& options, const std::function<bool(int32_t)>& on_token,
                    const Session::ProgressFn& progress) {
  Generation result;
  auto start = Stopwatch::now();
  const Matrix prompt_logits = session.prefill_last(sequence, prompt, progress);
  session.backend().synchronize();
  result.prefill_seconds = seconds_since(start);

  Sampler sampler(options.sampler, session.backend());
  std::vector<int32_t> history(options.cached.begin(), options.cached.end());
  history.insert(history.end(), prompt.begin(), prompt.end());
  // The last token wanted needs no logits after it; nor does one that fills the context.
  int64_t wanted = options.max_new_tokens;
  const int64_t max_ctx = session.options().max_ctx;
  if (max_ctx > 0) wanted = std::min(wanted, max_ctx - sequence.length() + 1);
  const auto draw = [&](const Matrix& logits) { sampler.draw(logits, history); };
  // The token to feed after the logits that were drawn from, or kEnd.
  const auto read = [&] {
    const int32_t token = sampler.read();
    if (contains(options.eos_ids, token)) {
      result.stop_reason = StopReason::kEos;
      return kEnd;
    }
    result.tokens.push_back(token);
    history.push_back(token);
    if (!on_token(token)) {
      result.stop_reason = StopReason::kStop;
      return kEnd;
    }
    if (options.interrupted != nullptr && options.interrupted->load()) {
      result.stop_reason = StopReason::kInterrupted;
      return kEnd;
    }
    return std::ssize(result.tokens) == wanted ? kEnd : token;
  };
  start = Stopwatch::now();
  Sequence* const one = &sequence;
  if (wanted > 0) {
    draw(prompt_logits);
    decode_loop(session, {&one, 1}, {read()}, wanted - 1, draw,
                [&](std::span<const size_t>, std::span<int32_t> next) {
                  ++result.decode_steps;
                  next[0] = read();
                });
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

std::vector<std::vector<int32_t>> generate_greedy_batch(Session& session,
                                                        std::span<Sequence* const> sequences,
                                                        std::span<const int32_t> next, int64_t max_new_tokens,
                                                        std::span<const int32_t> eos_ids,
                                                        const std::atomic<bool>* interrupted) {
  std::vector<std::vector<int32_t>> texts(sequences.size());
  const auto accept = [&](size_t i, int32_t token) {
    if (max_new_tokens <= 0 || contains(eos_ids, token)) return kEnd;
    texts[i].push_back(token);
    return static_cast<int64_t>(texts[i].size()) < max_new_tokens ? token : kEnd;
  };
  std::vector<int32_t> first;
  for (size_t i = 0; i < sequences.size(); ++i) first.push_back(accept(i, next[i]));
  decode_loop(
      session, sequences, std::move(first), max_new_tokens - 1,
      [&](const Matrix& logits) {
        stop_if(interrupted);
        session.backend().draw(logits, {}, {});
      },
      [&](std::span<const size_t> live, std::span<int32_t> drawn) {
        session.backend().read_drawn(drawn);
        for (size_t j = 0; j < live.size(); ++j) drawn[j] = accept(live[j], token_of(drawn[j]));
      });
  return texts;
}

}  // namespace lariat
