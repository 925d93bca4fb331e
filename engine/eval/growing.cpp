#include "engine/eval/growing.h"

#include <algorithm>
#include <deque>

#include "engine/eval/windows.h"
#include "engine/interrupt.h"
#include "engine/memory_check.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// Where the step that begins with `length` tokens in the cache ends, at most at `end`.
int64_t end_of_step(const Session& session, int64_t length, int64_t end) {
  const RopeScaling& rope = session.rope();
  const bool moves_always = rope.type != RopeType::kLongRope && session.options().rope_steps == 0;
  if (!rope.depends_on_length() || moves_always) return end;
  const RopeFrequencies first = session.frequencies_for(length + 1);
  while (end > length + 1 && session.frequencies_for(end) != first) --end;
  return end;
}

class Growing {
 public:
  Growing(Session& session, TokenSource& text, const PerplexityOptions& options)
      : session_(session),
        text_(text),
        options_(options),
        bos_(options.bos ? 1 : 0),
        ctx_(*std::max_element(options.ctx.begin(), options.ctx.end())) {
    const int64_t holds = ctx_ - bos_, limit = text.max_tokens();
    stretches_ = limit > 0 ? std::max<int64_t>(text.count(limit) / holds, 1) : 1;
    for (const int64_t ctx : options.ctx) {
      results.push_back(PerplexityResult::with_buckets(0, ctx, options.buckets));
      results.back().ctx = ctx;
      results.back().step = options.step;
      results.back().method = PerplexityMethod::kGrowing;
    }
  }

  void run(const std::function<void(int64_t, int64_t)>& progress) {
    const int64_t at_once = affordable_sequences(session_, ctx_, stretches_);
    for (int64_t first = 0; first < stretches_; first += at_once) {
      begin(first, std::min(at_once, stretches_ - first));
      for (int64_t length = 0; length < ctx_ - 1;) {
        stop_if(options_.interrupted);
        // The context's last token is predicted and not read.
        const int64_t end = end_of_step(session_, length, std::min(length + options_.step, ctx_ - 1));
        read(length, end);
        length = end;
        const auto sequences = static_cast<int64_t>(sequences_.size());
        if (progress) progress(first * ctx_ + sequences * length, stretches_ * ctx_);
      }
    }
  }

  std::vector<PerplexityResult> results;

 private:
  // Empty contexts for the stretches [first, first + count), and their tokens.
  void begin(int64_t first, int64_t count) {
    const int64_t holds = ctx_ - bos_;
    sequences_.clear();
    tokens_.clear();
    for (int64_t i = first; i < first + count; ++i) {
      sequences_.push_back(session_.new_sequence());
      auto& tokens = tokens_.emplace_back();
      if (options_.bos) tokens.push_back(*options_.bos);
      const auto ids = text_.range(i * holds, (i + 1) * holds);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
  }

  // Appends the tokens [length, end) of every stretch and scores those that come after each.
  void read(int64_t length, int64_t end) {
    const auto from = static_cast<size_t>(length), count = static_cast<size_t>(end - length);
    std::vector<Prompt> prompts;
    for (size_t i = 0; i < sequences_.size(); ++i)
      prompts.push_back({&sequences_[i], std::span(tokens_[i]).subspan(from, count), 0});
    session_.prefill(
        prompts,
        [&](size_t i, int64_t row, const Matrix& logits) {
          const int64_t at = length + row + 1;
          losses_.resize(static_cast<size_t>(logits.rows));
          session_.backend().token_nll(
              logits, std::span(tokens_[i]).subspan(static_cast<size_t>(at), losses_.size()), losses_);
          for (size_t k = 0; k < losses_.size(); ++k) add(at + static_cast<int64_t>(k), losses_[k]);
        },
        [&](int64_t) { stop_if(options_.interrupted); });
  }

  void add(int64_t position, double loss) {
    for (auto& result : results) {
      if (position < result.ctx) result.add(position, loss);
    }
  }

  Session& session_;
  TokenSource& text_;
  const PerplexityOptions& options_;
  int64_t bos_, ctx_, stretches_ = 1;
  std::deque<Sequence> sequences_;
  std::vector<std::vector<int32_t>> tokens_;  // of the stretches read now, each with its BOS
  std::vector<double> losses_;
};

}  // namespace

std::vector<PerplexityResult> measure_growing(Session& session, TokenSource& text,
                                              const std::string& text_name, const PerplexityOptions& options,
                                              const std::function<void(int64_t done, int64_t of)>& progress) {
  if (options.step < 1) throw Error("a step is at least 1");
  Session* const one = &session;
  check_windows({&one, 1}, text, text_name, options, "context");
  Growing growing(session, text, options);
  bool complete = true;
  try {
    growing.run(progress);
  } catch (const Interrupted&) {
    complete = false;  // what was scored until then counts
  }
  for (auto& result : growing.results) result.complete = complete;
  return std::move(growing.results);
}

}  // namespace lariat
