#include "engine/eval/measure/perplexity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/windows.h"
#include "engine/eval/verdict.h"
#include "engine/interrupt.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// In the order of PerplexityMethod.
constexpr std::string_view kMethods[] = {"sliding", "chunks", "growing", "anchored", "continuation", "tail"};

PerplexityResult empty_result(const PerplexityOptions& options, PerplexityMethod method, int64_t from,
                              int64_t ctx, int64_t text_tokens) {
  PerplexityResult result;
  result.losses.assign(static_cast<size_t>(text_tokens), std::nanf(""));
  result.ctx = ctx;
  result.method = method;
  result.stride = method == PerplexityMethod::kSliding ? window_stride(options, ctx) : 0;
  result.step = uses_step(method) ? options.step : 0;
  for (const int64_t end : bucket_ends(options, from, ctx))
    result.positions.push_back({{}, std::exchange(from, end), end});
  return result;
}

const LossJournal::Losses* known_losses(const PerplexityOptions& options, int64_t first,
                                        const std::vector<size_t>& sizes) {
  return options.journal == nullptr ? nullptr : options.journal->known(first, sizes);
}

// --- windows ---

// One pass over a window, and all results that use its losses, including shorter windows.
struct Pass {
  Window window;
  std::vector<std::pair<size_t, Window>> parts;  // by result index
};

std::vector<Pass> passes_of(const PerplexityOptions& options, const TokenSource& text, bool shared) {
  std::vector<std::pair<size_t, Window>> parts;
  for (size_t i = 0; i < options.ctx.size(); ++i) {
    for (const Window& window : windows_of(options, options.ctx[i], text)) parts.emplace_back(i, window);
  }
  std::ranges::stable_sort(parts, {}, [](const auto& part) { return part.second.begin; });
  std::vector<Pass> passes;
  for (const auto& [result, window] : parts) {
    if (passes.empty() || !shared || passes.back().window.begin != window.begin)
      passes.push_back({window, {}});
    Pass& pass = passes.back();
    pass.window.end = std::max(pass.window.end, window.end);
    pass.window.score_from = std::min(pass.window.score_from, window.score_from);
    pass.parts.emplace_back(result, window);
  }
  return passes;
}

void read_windows(Session& session, const TokenSource& text, const PerplexityOptions& options,
                  std::vector<PerplexityResult>& results, const PerplexityProgressFn& progress) {
  const int64_t room = session.options().prefill_chunk, bos = std::ssize(options.bos);
  const bool anchored = options.method == PerplexityMethod::kAnchored;
  const bool shared =
      options.method != PerplexityMethod::kTail &&
      !follows_length(session.rope(), session.options().positions, std::ranges::max(options.ctx));
  const auto passes = passes_of(options, text, shared);
  std::deque<Sequence> sequences;
  // Without a BOS, the first text token has no predecessor.
  const auto first_scored = [bos](const Window& window) {
    return std::max(window.score_from, window.begin + 1 - bos);
  };
  const auto add = [&](size_t pass, const std::vector<double>& losses) {
    const Window& read = passes[pass].window;
    for (size_t i = 0; i < losses.size(); ++i) {
      const int64_t token = first_scored(read) + static_cast<int64_t>(i);
      for (const auto& [result, window] : passes[pass].parts) {
        if (token >= window.score_from && token < window.end)
          results[result].add(token - read.begin + bos, token, losses[i]);
      }
    }
  };
  for (size_t first = 0, end = 0; first < passes.size(); first = end) {
    // Batch: windows up to `room` tokens, plus all that start where the last one does (not if anchored).
    std::vector<std::vector<int32_t>> tokens;
    std::vector<size_t> sizes;  // losses per window
    for (int64_t n = 0; end < passes.size(); ++end) {
      const Window& window = passes[end].window;
      const bool together = !anchored && end > first && window.begin == passes[end - 1].window.begin;
      if (end > first && n >= room && !together) break;
      n += std::ssize(tokens.emplace_back(text.after_bos(options.bos, window.begin, window.end))) - 1;
      sizes.push_back(static_cast<size_t>(window.end - first_scored(window)));
    }
    const auto number = static_cast<int64_t>(first);
    const LossJournal::Losses* const known = known_losses(options, number, sizes);
    LossJournal::Losses losses(tokens.size());
    if (known != nullptr) {
      losses = *known;
    } else {
      std::vector<Reading> readings;
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (i == sequences.size()) sequences.push_back(session.new_sequence());
        const int64_t size = std::ssize(tokens[i]);
        const Window& window = passes[first + i].window;
        sequences[i].truncate(0);
        if (options.prefixes != nullptr) {
          const Sequence& prefix = options.prefixes->by_begin.at(window.begin);
          sequences[i] = session.fork(prefix, prefix.length());
          session.set_rope(sequences[i], options.rope.value_or(session.rope()));
        }
        sequences[i].expect(size);  // dynamic scale of the whole window
        readings.push_back({&sequences[i], tokens[i], size - 1, window.score_from - window.begin + bos});
      }
      score(session, readings, options.interrupted,
            [&](size_t i, int64_t, double loss) { losses[i].push_back(loss); });
      if (options.journal != nullptr) options.journal->keep(number, losses, 0);
    }
    for (size_t i = 0; i < tokens.size(); ++i) add(first + i, losses[i]);
    const Window& last = passes[end - 1].window;
    if (progress) progress({anchored ? last.end : last.begin, text.size(), results});
  }
}

// --- a growing context ---

// Reads contexts that grow together, the `first` and following ones. after: receives their length.
void grow(Session& session, const TokenSource& text, const PerplexityOptions& options,
          std::vector<PerplexityResult>& results, std::span<const Window> windows, int64_t first,
          const std::function<void(int64_t length)>& after) {
  const int64_t ctx = std::ranges::max(options.ctx), bos = std::ssize(options.bos);
  const int64_t from = std::max<int64_t>(bos, 1);  // the first scored position
  std::vector<std::vector<int32_t>> tokens;
  std::deque<Sequence> sequences;
  std::vector<Reading> readings;
  for (const Window& window : windows) {
    tokens.push_back(text.after_bos(options.bos, window.begin, window.end));
    readings.push_back({&sequences.emplace_back(session.new_sequence()), tokens.back(), 0, bos});
  }
  const LossJournal::Losses* const known =
      known_losses(options, first, std::vector(windows.size(), static_cast<size_t>(ctx - from)));
  LossJournal::Losses losses(windows.size());
  if (known != nullptr) losses = *known;
  int64_t length = 0;
  for (int64_t scored = from; length < ctx - 1; after(length)) {
    // The last token is predicted but not prefilled.
    length = end_of_step(session, length, std::min(length + options.step, ctx - 1));
    for (Reading& reading : readings) reading.end = length;
    if (known == nullptr) {
      score(session, readings, options.interrupted,
            [&](size_t i, int64_t, double loss) { losses[i].push_back(loss); });
    }
    for (size_t i = 0; i < windows.size(); ++i) {
      for (int64_t position = scored; position <= length; ++position) {
        const double loss = losses[i][static_cast<size_t>(position - from)];
        for (PerplexityResult& result : results) {
          if (position < result.ctx) result.add(position, windows[i].begin + position - bos, loss);
        }
      }
    }
    scored = std::max(scored, length + 1);
  }
  if (options.journal != nullptr && known == nullptr) options.journal->keep(first, losses, length);
}

void read_growing(Session& session, const TokenSource& text, const PerplexityOptions& options,
                  std::vector<PerplexityResult>& results, const PerplexityProgressFn& progress) {
  const int64_t ctx = std::ranges::max(options.ctx);
  const auto windows = windows_of(options, ctx, text);
  const auto stretches = std::ssize(windows);
  const int64_t at_once = affordable_sequences(session, ctx, stretches);
  for (int64_t first = 0; first < stretches; first += at_once) {
    const int64_t count = std::min(at_once, stretches - first);
    const auto some = std::span(windows).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    grow(session, text, options, results, some, first, [&](int64_t length) {
      if (progress) progress({first * ctx + count * length, stretches * ctx, results});
    });
  }
}

}  // namespace

std::string_view name_of(PerplexityMethod method) { return kMethods[static_cast<size_t>(method)]; }

PerplexityMethod parse_perplexity_method(std::string_view name) {
  for (const auto method : {PerplexityMethod::kSliding, PerplexityMethod::kChunks, PerplexityMethod::kGrowing,
                            PerplexityMethod::kAnchored, PerplexityMethod::kTail}) {
    if (name == name_of(method)) return method;
  }
  throw UsageError("perplexity method \"" + std::string(name) +
                   "\": unknown; use sliding, chunks, growing, anchored or tail");
}

void PerplexityResult::add(int64_t position, int64_t token, double loss) {
  LossSum::add(loss);
  losses[static_cast<size_t>(token)] = static_cast<float>(loss);
  std::ranges::upper_bound(positions, position, {}, &PositionBucket::to)->add(loss);
}

Loss loss_of(const PerplexityResult& result, std::optional<int64_t> stride) {
  return {.stride = stride,
          .tokens = result.tokens,
          .nll = result.nll,
          .ppl = result.ppl(),
          .error = result.standard_error(),
          .blocks = block_sums(result.losses)};
}

std::vector<PositionLoss> losses_of(const std::vector<PositionBucket>& positions) {
  std::vector<PositionLoss> losses;
  losses.reserve(positions.size());
  for (const auto& bucket : positions)
    losses.push_back({bucket.from, bucket.to, bucket.tokens, bucket.mean(), bucket.mean_error()});
  return losses;
}

nlohmann::ordered_json losses_json(const std::vector<float>& losses) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const float loss : losses)
    json.push_back(std::isfinite(loss) ? nlohmann::ordered_json(std::round(1e5 * loss) / 1e5) : nullptr);
  return json;
}

bool uses_step(PerplexityMethod method) {
  return method == PerplexityMethod::kGrowing || method == PerplexityMethod::kAnchored ||
         method == PerplexityMethod::kTail;
}

int64_t default_step(const SessionOptions& session, PerplexityMethod method) {
  const bool windows = uses_step(method) && method != PerplexityMethod::kGrowing;
  return session.rope_steps == 0 && !windows ? 32 : PerplexityOptions().step;
}

Plan::Perplexity perplexity_plan(const PerplexityOptions& options, int64_t max_tokens) {
  return {.measured = true,
          .method = std::string(name_of(options.method)),
          .stride = options.stride,
          .step = options.step,
          .max_tokens = max_tokens,
          .buckets = options.buckets,
          .ends = options.ends};
}

int64_t default_ctx(const PerplexityOptions& options, int64_t original_ctx, int64_t text_tokens) {
  constexpr int64_t kMost = 2048;  // long windows are slow
  const bool beyond =
      options.method == PerplexityMethod::kGrowing || options.method == PerplexityMethod::kAnchored;
  const int64_t wanted = beyond ? 2 * original_ctx : std::min(original_ctx, kMost);
  return std::max(kMinCtx, std::min(wanted, text_tokens + std::ssize(options.bos)));
}

std::vector<int64_t> bucket_ends(const PerplexityOptions& options, int64_t from, int64_t ctx) {
  const int64_t span = ctx - from, buckets = std::clamp<int64_t>(options.buckets, 1, span);
  std::vector<int64_t> ends;
  if (options.method == PerplexityMethod::kAnchored) {
    for (int64_t end = from + options.step; end < ctx; end += options.step) ends.push_back(end);
  } else if (!options.ends.empty()) {
    std::ranges::copy_if(options.ends, std::back_inserter(ends),
                         [&](int64_t end) { return end > from && end < ctx; });
  } else {
    for (int64_t i = 1; i < buckets; ++i) ends.push_back(from + span * i / buckets);
  }
  ends.push_back(ctx);
  return ends;
}

std::vector<PerplexityResult> measure_perplexity(Session& session, const TokenSource& text,
                                                 const PerplexityOptions& options,
                                                 const PerplexityProgressFn& progress) {
  Session* const one = &session;
  check_windows({&one, 1}, text, options);
  std::vector<PerplexityResult> results;
  for (const int64_t ctx : options.ctx)
    results.push_back(empty_result(options, options.method, 0, ctx, text.size()));
  const bool complete = uninterrupted([&] {
    if (options.method == PerplexityMethod::kGrowing) {
      read_growing(session, text, options, results, progress);
    } else {
      read_windows(session, text, options, results, progress);
    }
  });
  for (auto& result : results) result.complete = complete;
  return results;
}

void fill_prefixes(Session& session, const TokenSource& text, const PerplexityOptions& options, int64_t ctx,
                   Prefixes& prefixes, const Session::ProgressFn& progress) {
  if (prefixes.ctx == ctx) return;
  prefixes.by_begin.clear();
  const int64_t bos = std::ssize(options.bos), chunk = std::max<int64_t>(session.options().prefill_chunk, 1);
  const auto windows = windows_of(options, ctx, text);
  check_memory(session, ctx, std::ssize(windows), "contexts of all columns");
  for (const Window& window : windows) {
    const std::vector<int32_t> tokens = text.after_bos(options.bos, window.begin, window.end);
    // Whole chunks, so that a copy under the same scaling gives a whole prefill's bits. The token before the
    // tail predicts it.
    const int64_t end = (window.score_from - window.begin + bos - 1) / chunk * chunk;
    Sequence sequence = session.new_sequence();
    sequence.expect(std::ssize(tokens));
    const Reading reading{&sequence, tokens, end, end + 1};
    score(
        session, {&reading, 1}, options.interrupted, [](size_t, int64_t, double) {}, progress);
    prefixes.by_begin.emplace(window.begin, std::move(sequence));
  }
  prefixes.ctx = ctx;
}

PerplexityResult measure_continuation(Session& session, Sequence& sequence, std::vector<int32_t>& tokens,
                                      const TokenSource& text, const PerplexityOptions& options,
                                      const PerplexityProgressFn& progress) {
  const int64_t n = text.size();
  if (tokens.empty()) tokens = options.bos;
  const int64_t before = std::ssize(tokens), total = before + n;
  sequence.rewind(std::max<int64_t>(before - 1, 0));
  const int64_t first = sequence.length();  // first token of this run
  if (n == 0 || total < 2) throw Error(text.size_in_words() + ", none with a predecessor; use a longer text");
  check_memory(session, total, 1, fmt::format("{} in a context of {}", text.name(), counted(total, "token")));
  const auto more = text.range(0, n);
  tokens.insert(tokens.end(), more.begin(), more.end());
  const int64_t from = std::max(first + 1, before);
  auto result = empty_result(options, PerplexityMethod::kContinuation, from, total, n);
  const Reading reading{&sequence, tokens, total, from};
  result.complete = uninterrupted([&] {
    score(
        session, {&reading, 1}, options.interrupted,
        [&](size_t, int64_t position, double loss) { result.add(position, position - before, loss); },
        [&](int64_t done) {
          if (progress) progress({done, total - first, {&result, 1}});
        });
  });
  return result;
}

}  // namespace lariat
