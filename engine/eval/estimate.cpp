#include "engine/eval/estimate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/eval/chart.h"
#include "engine/stopwatch.h"

namespace lariat {
namespace {

constexpr int64_t kProbeTokens = 256, kProbeDepth = 4096;
constexpr int kProbePasses = 4;

// A context of zeros, on the frequencies that the tokens read next will have, so that none is re-rotated.
Sequence zeros(Session& session, int64_t length, int64_t grows_to) {
  KvCache::Contents contents;
  const std::vector<std::byte> page(session.pool().geometry().page_bytes);
  for (int64_t at = 0; at < length; at += kKvPage) {
    contents.pages.push_back(session.pool().allocate());
    session.backend().copy_in(contents.pages.back()->data(), page.data(), page.size());
  }
  contents.length = length;
  contents.frequencies = session.frequencies_for(grows_to);
  return session.restore(std::move(contents), grows_to);
}

}  // namespace

WorkRate measure_rate(Session& session, int64_t longest) {
  const int64_t count = std::clamp<int64_t>(longest / 2, 1, kProbeTokens);
  const int64_t depth = std::clamp<int64_t>(longest - count, 0, kProbeDepth);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(session.model().spec.vocab_size));
  }
  const auto time_of = [&](int64_t behind, int64_t logits_from) {
    Sequence sequence = zeros(session, behind, behind + count);
    session.backend().synchronize();
    const auto start = Stopwatch::now();
    session.prefill(sequence, tokens, logits_from, [](int64_t, const Matrix&) {});
    session.backend().synchronize();
    return seconds_since(start);
  };
  time_of(0, count - 1);  // threads and packed weights
  const double first = time_of(0, count - 1), all = time_of(0, 0), deep = time_of(depth, count - 1);
  Sequence sequence = session.new_sequence();
  session.decode(sequence, tokens[0]);
  const auto start = Stopwatch::now();
  for (int i = 0; i < kProbePasses; ++i) session.decode(sequence, tokens[0]);
  const double one = seconds_since(start) / kProbePasses;

  return rate_of({.tokens = count, .depth = depth, .first = first, .scored = all, .deep = deep, .one = one});
}

WorkRate rate_of(const Trial& trial) {
  const auto n = static_cast<double>(trial.tokens), depth = static_cast<double>(trial.depth);
  WorkRate rate;
  rate.position = depth > 0 ? std::max(0.0, trial.deep - trial.first) / (n * depth) : 0;
  rate.logits = std::max(0.0, trial.scored - trial.first) / n;
  rate.token = std::max(0.0, trial.first - trial.one) / n;
  // A busy machine can make the parts longer than the whole: then a pass is taken for all that it is about.
  const double rest = trial.one - rate.token - rate.logits;
  rate.pass = rest > 0 ? rest : trial.one;
  return rate;
}

double seconds_for(const WorkRate& rate, int64_t from, int64_t to, int64_t step, int64_t scored) {
  const auto tokens = static_cast<double>(std::max<int64_t>(to - from, 0));
  const double passes = step > 0 ? tokens / static_cast<double>(step) : 1.0;
  const double positions = tokens * static_cast<double>(from + to) / 2;
  if (tokens == 0) return 0;
  return passes * rate.pass + tokens * rate.token + positions * rate.position +
         static_cast<double>(scored) * rate.logits;
}

double seconds_for(const WorkRate& rate, const std::vector<Work>& work) {
  double seconds = 0;
  for (const Work& one : work)
    seconds += static_cast<double>(one.times) * seconds_for(rate, one.from, one.to, one.step, one.scored);
  return seconds;
}

double tokens_in(const std::vector<Work>& work) {
  double tokens = 0;
  for (const Work& one : work)
    tokens += static_cast<double>(one.times) * static_cast<double>(one.to - one.from);
  return tokens;
}

std::vector<Work> window_work(const PerplexityOptions& options, int64_t ctx, int64_t text_tokens,
                              int64_t prefill_chunk) {
  if (options.method == PerplexityMethod::kChunks)
    return {{0, ctx, prefill_chunk, ctx / 2, std::max<int64_t>(text_tokens / ctx, 1)}};
  const int64_t moved = std::min(options.stride, ctx - 1);
  const int64_t windows = 1 + (std::max<int64_t>(text_tokens - ctx, 0) + moved - 1) / moved;
  return {{0, ctx, prefill_chunk, moved, windows}};
}

std::vector<Work> growing_work(int64_t ctx, int64_t step, int64_t contexts) {
  return {{0, ctx, contexts * std::min(step, ctx), ctx, contexts}};
}

std::vector<Work> passkey_work(const PasskeyOptions& options, int64_t length, int64_t prefill_chunk) {
  const int64_t trials = options.trials, answer = options.max_new_tokens;
  // Only a passkey's prompts are alike up to the depth: other needles differ from trial to trial, early on.
  const bool alike = options.needles.task == NeedleTask::kPasskey;
  const auto before = [&](double depth) {
    return alike ? static_cast<int64_t>(depth * static_cast<double>(length)) : 0;
  };
  std::vector<Work> work = {{0, before(options.depths.back()), prefill_chunk}};
  for (const double depth : options.depths) {
    work.push_back({before(depth), length, prefill_chunk, 1, trials});
    work.push_back({length, length + answer, trials, answer, trials});
  }
  return work;
}

std::string spoken_duration(double seconds) {
  seconds = std::min(seconds, 1e12);
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(seconds, 1.0));
  const auto minutes = static_cast<int64_t>(std::lround(seconds / 60));
  return minutes < 90 ? fmt::format("{} min", minutes)
                      : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

std::string spoken_work(double tokens, double seconds, double cache_bytes) {
  const double mebibytes = cache_bytes / (1 << 20);
  return fmt::format("{} tokens through the model: about {}, up to {} of KV cache", grouped(tokens),
                     spoken_duration(seconds),
                     mebibytes < 1024 ? fmt::format("{:.0f} MiB", std::ceil(mebibytes))
                                      : fmt::format("{:.1f} GiB", mebibytes / 1024));
}

}  // namespace lariat
