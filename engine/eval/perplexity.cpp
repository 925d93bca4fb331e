#include "engine/eval/perplexity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "engine/eval/windows.h"
#include "engine/interrupt.h"
#include "engine/memory_check.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// One pass over a window, and the results it feeds (several lengths, when they share it).
struct Job {
  struct Part {
    size_t result;
    Window window;
  };
  int64_t begin = 0, end = 0, score_from = 0;
  std::vector<Part> parts;
  std::vector<int32_t> tokens;  // BOS and all but the last, whose logits predict nothing that is scored
};

class Measurement {
 public:
  Measurement(Session& session, TokenSource& text, const PerplexityOptions& options)
      : session_(session),
        text_(text),
        options_(options),
        bos_(options.bos ? 1 : 0),
        shares_(!session.rope().depends_on_length()) {
    for (const int64_t ctx : options.ctx) {
      windows_.emplace_back(options, ctx);
      next_.push_back(windows_.back().next(text));
      auto result = PerplexityResult::with_buckets(0, ctx, options.buckets);
      result.ctx = ctx;
      result.method = options.method;
      result.stride = options.method == PerplexityMethod::kSliding ? options.stride : 0;
      results.push_back(std::move(result));
    }
  }

  // Runs a batch of windows; false when there are none left.
  bool step() {
    const int64_t room = session_.options().prefill_chunk;
    std::vector<Job> jobs;
    for (int64_t tokens = 0; tokens == 0 || tokens < room;) {
      auto more = next_jobs();
      if (more.empty()) break;
      for (auto& job : more) {
        tokens += static_cast<int64_t>(job.tokens.size());
        jobs.push_back(std::move(job));
      }
    }
    if (jobs.empty()) return false;
    run(jobs);
    done_up_to = jobs.back().begin;
    return true;
  }

  std::vector<PerplexityResult> results;
  int64_t done_up_to = 0;

 private:
  // The passes for the windows with the smallest begin, of whatever length.
  std::vector<Job> next_jobs() {
    int64_t begin = -1;
    for (const auto& window : next_) {
      if (window && (begin < 0 || window->begin < begin)) begin = window->begin;
    }
    std::vector<Job> jobs;
    for (size_t i = 0; i < next_.size(); ++i) {
      if (!next_[i] || next_[i]->begin != begin) continue;
      const Window window = *next_[i];
      if (jobs.empty() || !shares_) jobs.push_back({begin, window.end, window.score_from, {}, {}});
      Job& job = jobs.back();
      job.end = std::max(job.end, window.end);
      job.score_from = std::min(job.score_from, window.score_from);
      job.parts.push_back({i, window});
    }
    for (auto& job : jobs) {
      if (bos_ != 0) job.tokens.push_back(*options_.bos);
      const auto ids = text_.range(job.begin, std::max(job.begin, job.end - 1));
      job.tokens.insert(job.tokens.end(), ids.begin(), ids.end());
      for (const auto& part : job.parts) next_[part.result] = windows_[part.result].next(text_);
    }
    return jobs;
  }

  void run(const std::vector<Job>& jobs) {
    while (sequences_.size() < jobs.size()) sequences_.push_back(session_.new_sequence());
    std::vector<Prompt> prompts;
    for (size_t i = 0; i < jobs.size(); ++i) {
      sequences_[i].truncate(0);
      // A dynamic scale is that of the whole window, its last token included.
      sequences_[i].expect(static_cast<int64_t>(jobs[i].tokens.size()) + 1);
      prompts.push_back({&sequences_[i], jobs[i].tokens, jobs[i].score_from - jobs[i].begin + bos_ - 1});
    }
    stop_if(options_.interrupted);
    session_.prefill(
        prompts, [&](size_t i, int64_t first, const Matrix& logits) { take(jobs[i], first, logits); },
        [&](int64_t) { stop_if(options_.interrupted); });
  }

  // The logits of window position p predict token begin + p + 1 - bos_ of the text.
  void take(const Job& job, int64_t position, const Matrix& logits) {
    const int64_t token = job.begin + position + 1 - bos_;
    losses_.resize(static_cast<size_t>(logits.rows));
    session_.backend().token_nll(logits, text_.range(token, token + logits.rows), losses_);
    for (int64_t row = 0; row < logits.rows; ++row) {
      score(job, token + row, losses_[static_cast<size_t>(row)]);
    }
  }

  void score(const Job& job, int64_t token, double loss) {
    for (const auto& [index, window] : job.parts) {
      if (token < window.score_from || token >= window.end) continue;
      results[index].add(token - window.begin + bos_, loss);
    }
  }

  Session& session_;
  TokenSource& text_;
  const PerplexityOptions& options_;
  int64_t bos_;
  bool shares_;
  std::vector<Windows> windows_;             // one per length
  std::vector<std::optional<Window>> next_;  // the next window of each length
  std::deque<Sequence> sequences_;
  std::vector<double> losses_;
};

}  // namespace

std::string_view name_of(PerplexityMethod method) {
  switch (method) {
    case PerplexityMethod::kSliding:
      return "sliding";
    case PerplexityMethod::kChunks:
      return "chunks";
    case PerplexityMethod::kGrowing:
      return "growing";
    case PerplexityMethod::kContinuation:
      return "continuation";
  }
  return "?";
}

PerplexityMethod parse_perplexity_method(std::string_view name) {
  if (name == "sliding") return PerplexityMethod::kSliding;
  if (name == "chunks") return PerplexityMethod::kChunks;
  if (name == "growing") return PerplexityMethod::kGrowing;
  throw UsageError("unknown perplexity method \"" + std::string(name) +
                   "\"; known: sliding, chunks, growing");
}

PerplexityResult PerplexityResult::with_buckets(int64_t from, int64_t to, int wanted) {
  PerplexityResult result;
  const int64_t span = to - from, buckets = std::clamp<int64_t>(wanted, 1, span);
  for (int64_t i = 0; i < buckets; ++i)
    result.positions.push_back({from + span * i / buckets, from + span * (i + 1) / buckets, 0, 0});
  return result;
}

void PerplexityResult::add(int64_t position, double loss) {
  tokens += 1;
  nll += loss;
  squares += loss * loss;
  const int64_t from = positions.front().from, span = positions.back().to - from;
  const auto buckets = static_cast<int64_t>(positions.size());
  // The bucket i with span * i / buckets <= position - from < span * (i + 1) / buckets.
  PositionBucket& bucket = positions[static_cast<size_t>(((position - from + 1) * buckets - 1) / span)];
  bucket.tokens += 1;
  bucket.nll += loss;
}

double PerplexityResult::ppl() const {
  return tokens == 0 ? std::nan("") : std::exp(nll / static_cast<double>(tokens));
}

double PerplexityResult::standard_error() const {
  if (tokens < 2) return std::nan("");
  const auto n = static_cast<double>(tokens);
  const double mean = nll / n, variance = std::max(squares / n - mean * mean, 0.0);
  return ppl() * std::sqrt(variance / (n - 1));
}

std::vector<PerplexityResult> measure_perplexity(
    Session& session, TokenSource& text, const std::string& text_name, const PerplexityOptions& options,
    const std::function<void(const PerplexityProgress&)>& progress) {
  Session* const one = &session;
  check_windows({&one, 1}, text, text_name, options);
  Measurement measurement(session, text, options);
  bool complete = true;
  try {
    while (measurement.step()) {
      if (progress) progress({measurement.done_up_to, measurement.results});
    }
  } catch (const Interrupted&) {
    complete = false;  // what was scored until then counts
  }
  for (auto& result : measurement.results) result.complete = complete;
  return std::move(measurement.results);
}

PerplexityResult measure_continuation(Session& session, Sequence& sequence, std::vector<int32_t>& tokens,
                                      TokenSource& text, const std::string& text_name,
                                      const PerplexityOptions& options,
                                      const std::function<void(int64_t done, int64_t of)>& progress) {
  const int64_t n = text.count(std::numeric_limits<int64_t>::max());
  if (tokens.empty() && options.bos) tokens.push_back(*options.bos);
  const auto before = static_cast<int64_t>(tokens.size()), total = before + n;
  sequence.rewind(std::max<int64_t>(before - 1, 0));
  const int64_t first = sequence.length();  // of the tokens that are read now
  if (n == 0 || total < 2)
    throw Error(fmt::format("{}: has {}, and none with something before it{}", text_name, counted(n, "token"),
                            kTextTooShort));
  check_memory(session, total, 1, fmt::format("{}: a context of {}", text_name, counted(total, "token")));
  const auto more = text.range(0, n);
  tokens.insert(tokens.end(), more.begin(), more.end());
  auto result = PerplexityResult::with_buckets(first + 1, total, options.buckets);
  result.ctx = total;
  result.method = PerplexityMethod::kContinuation;
  std::vector<double> losses;
  // Row r of the logits predicts the token at first + r + 1; the last row none that is known.
  const auto take = [&](int64_t row, const Matrix& logits) {
    const int64_t at = first + row + 1, count = std::min(logits.rows, total - at);
    if (count <= 0) return;
    losses.resize(static_cast<size_t>(count));
    session.backend().token_nll(
        logits.row_range(0, count),
        std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(count)), losses);
    for (int64_t i = 0; i < count; ++i) result.add(at + i, losses[static_cast<size_t>(i)]);
  };
  result.complete = true;
  try {
    stop_if(options.interrupted);
    session.prefill(sequence, std::span(tokens).subspan(static_cast<size_t>(first)), 0, take,
                    [&](int64_t done) {
                      if (progress) progress(done, total - first);
                      stop_if(options.interrupted);
                    });
  } catch (const Interrupted&) {
    result.complete = false;  // what was scored until then counts
  }
  return result;
}

}  // namespace lariat
