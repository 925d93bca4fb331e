#include "engine/eval/measure/divergence.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/eval/measure/windows.h"
#include "engine/interrupt.h"
#include "kernels/error.h"
#include "kernels/parallel.h"

namespace lariat {
namespace {

constexpr int64_t kKeptBytes = int64_t{64} << 20;  // logits per model

struct Estimate {
  double value, error;
};

template <class Value>
Estimate mean_of(const std::vector<TokenDivergence>& tokens, const Value& value) {
  const auto n = static_cast<double>(tokens.size());
  double sum = 0, squares = 0;
  for (const auto& token : tokens) sum += value(token);
  const double mean = sum / n;
  for (const auto& token : tokens) squares += (value(token) - mean) * (value(token) - mean);
  return {mean, std::sqrt(squares / n / (n - 1))};
}

Figure exp_of(const Estimate& mean) {
  const double value = std::exp(mean.value);
  return {value, value * mean.error};
}

double difference(const TokenDivergence& token) {
  return std::exp(-token.loss) - std::exp(-token.reference_loss);
}

// values: sorted ascending; share: 0 to 1.
double percentile(const std::vector<double>& values, double share) {
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double above = values[std::min(below + 1, values.size() - 1)];
  return std::lerp(values[below], above, place - std::floor(place));
}

DivergenceFigures figures(const DivergenceResult& result, int64_t from, int64_t to) {
  using Token = TokenDivergence;
  std::vector<Token> tokens;
  std::ranges::copy_if(result.tokens, std::back_inserter(tokens),
                       [&](const Token& token) { return token.position >= from && token.position < to; });
  const Estimate kl = mean_of(tokens, [](const Token& t) { return t.kl; });
  const Estimate p = mean_of(tokens, difference);
  const Estimate square = mean_of(tokens, [](const Token& t) { return difference(t) * difference(t); });
  const Estimate top = mean_of(tokens, [](const Token& t) { return t.same_top ? 1.0 : 0.0; });
  const double rms = std::sqrt(square.value);
  double largest = std::isnan(p.value) ? p.value : 0;
  std::vector<double> kls(std::isnan(kl.value) ? 1 : 0, kl.value);  // NaN has no order
  for (const Token& token : tokens) {
    largest = std::max(largest, std::abs(difference(token)));
    if (!std::isnan(kl.value)) kls.push_back(token.kl);
  }
  std::sort(kls.begin(), kls.end());
  return {from,
          to,
          std::ssize(tokens),
          {exp_of(mean_of(tokens, [](const Token& t) { return t.loss; })),
           exp_of(mean_of(tokens, [](const Token& t) { return t.reference_loss; })),
           exp_of(mean_of(tokens, [](const Token& t) { return t.loss - t.reference_loss; })),
           Figure{kl.value, kl.error}, Figure{percentile(kls, 0.99)}, Figure{kls.back()},
           Figure{p.value, p.error}, Figure{rms, rms == 0 ? 0 : square.error / (2 * rms)}, Figure{largest},
           Figure{top.value, top.error}}};
}

struct Side {
  Session& session;
  Sequence sequence;
  std::vector<float> logits{};  // requested rows
};

class Comparison {
 public:
  Comparison(Side model, Side reference, const PerplexityOptions& options, int threads)
      : sides_{std::move(model), std::move(reference)},
        options_(options),
        threads_(threads > 0 ? threads : cores()),
        vocab_(sides_[0].session.model().spec.vocab_size),
        rows_(std::max<int64_t>(1, kKeptBytes / (vocab_ * static_cast<int64_t>(sizeof(float))))) {
    const int64_t chunk = sides_[0].session.options().prefill_chunk;
    if (chunk > 0) rows_ = std::min(rows_, chunk);
  }

  void run(const Window& window, const TokenSource& text, DivergenceResult& result,
           const std::function<void(int64_t position)>& progress) {
    const bool grows = options_.method == PerplexityMethod::kGrowing;
    const int64_t bos = std::ssize(options_.bos);
    const std::vector<int32_t> tokens = text.after_bos(options_.bos, window.begin, window.end);
    for (Side& side : sides_) {
      side.sequence.truncate(0);
      side.sequence.expect(grows ? 0 : std::ssize(tokens));  // dynamic scale of the whole window
    }
    go_on(tokens, window.score_from - window.begin + bos - 1, result, [&](int64_t end) {
      if (grows && progress) progress(window.begin + end);
    });
  }

  // first: index of the first token whose logits are compared.
  void go_on(std::span<const int32_t> tokens, int64_t first, DivergenceResult& result,
             const std::function<void(int64_t end)>& progress) {
    const bool grows = options_.method == PerplexityMethod::kGrowing;
    const auto last = std::ssize(tokens) - 1;  // its logits predict no scored token
    for (int64_t begin = 0, end = 0; begin < last; begin = end) {
      const int64_t from = std::max(begin, first);
      end = std::min(from + (grows ? std::min(rows_, options_.step) : rows_), last);
      if (grows) {
        for (const Side& side : sides_) end = end_of_step(side.session, begin, end);
      }
      for (Side& side : sides_) read(side, tokens.subspan(index(begin), index(end - begin)), from - begin);
      compare(tokens.subspan(index(from + 1), index(end - from)), from + 1, result);
      progress(end);
    }
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  void read(Side& side, std::span<const int32_t> tokens, int64_t logits_from) const {
    side.logits.resize((tokens.size() - index(logits_from)) * index(vocab_));
    const auto keep = [&](size_t, int64_t first, const Matrix& logits) {
      side.session.backend().copy_out(&side.logits[index((first - logits_from) * vocab_)], logits.data,
                                      index(logits.rows * vocab_) * sizeof(float));
    };
    stop_if(options_.interrupted);
    forward(side.session, {&side.sequence, tokens, logits_from}, keep,
            [&](int64_t) { stop_if(options_.interrupted); });
  }

  // targets: the token that each row predicts; `position`: index of targets[0].
  void compare(std::span<const int32_t> targets, int64_t position, DivergenceResult& result) const {
    const auto rows = static_cast<int64_t>(targets.size());
    const size_t before = result.tokens.size();
    result.tokens.resize(before + targets.size());
    for_ranges(threads_, rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const auto row = [&](const Side& side) {
          return std::span(side.logits).subspan(index(i * vocab_), index(vocab_));
        };
        TokenDivergence& token = result.tokens[before + index(i)];
        token = diverge(row(sides_[0]), row(sides_[1]), targets[index(i)]);
        token.position = position + i;
      }
    });
    for (const TokenDivergence& token : std::span(result.tokens).subspan(before)) {
      const bool reference = std::isfinite(token.reference_loss);
      if (!reference) sides_[1].session.report_not_finite();
      // Finite losses with infinite divergence: the infinite logit belongs to another token.
      if (!std::isfinite(token.loss) || (reference && !std::isfinite(token.kl)))
        sides_[0].session.report_not_finite();
    }
  }

  std::array<Side, 2> sides_;  // the model, the reference
  const PerplexityOptions& options_;
  int threads_;
  int64_t vocab_, rows_;
};

}  // namespace

// With a = ln r and b = ln p up to constants: D = sum e^a (a - b) / sum e^a - ln sum e^a + ln sum e^b.
TokenDivergence diverge(std::span<const float> logits, std::span<const float> reference, int32_t token) {
  const auto top = std::max_element(logits.begin(), logits.end());
  const auto reference_top = std::max_element(reference.begin(), reference.end());
  const double b_top = *top, a_top = *reference_top;
  double a_sum = 0, b_sum = 0, weighted = 0;
  for (size_t v = 0; v < logits.size(); ++v) {
    const double a = reference[v] - a_top, b = logits[v] - b_top, weight = std::exp(a);
    a_sum += weight;
    b_sum += std::exp(b);
    if (weight != 0) weighted += weight * (a - b);
  }
  const double a_log = std::log(a_sum), b_log = std::log(b_sum), kl = weighted / a_sum - a_log + b_log;
  const auto at = static_cast<size_t>(token);
  return {kl < 0 ? 0 : kl,  // rounding
          b_log - (logits[at] - b_top), a_log - (reference[at] - a_top),
          top - logits.begin() == reference_top - reference.begin()};
}

Divergence divergence_of(const DivergenceResult& result, const std::vector<int64_t>& ends) {
  Divergence divergence{figures(result, 0, std::numeric_limits<int64_t>::max())};
  divergence.to = result.ctx;
  for (int64_t from = 0; const int64_t to : ends)
    divergence.positions.push_back(figures(result, std::exchange(from, to), to));
  return divergence;
}

// Scales are monotonic in length, so comparing the shortest and the longest length suffices.
bool same_frequencies(const Session& session, const Session& reference, const PerplexityOptions& options) {
  const int64_t longest = std::ranges::max(options.ctx);
  const auto moves = [&](const Session& one) {
    return one.options().stale_cache && options.method == PerplexityMethod::kGrowing &&
           frequencies_for(one.options(), one.rope(), 1) !=
               frequencies_for(one.options(), one.rope(), longest);
  };
  return frequencies_for(session.options(), session.rope(), 1) ==
             frequencies_for(reference.options(), reference.rope(), 1) &&
         frequencies_for(session.options(), session.rope(), longest) ==
             frequencies_for(reference.options(), reference.rope(), longest) &&
         moves(session) == moves(reference);
}

DivergenceResult measure_divergence(Session& session, Session& reference, const TokenSource& text,
                                    const PerplexityOptions& options, int threads,
                                    const std::function<void(int64_t position)>& progress) {
  const ModelSpec &one = session.model().spec, &other = reference.model().spec;
  if (one.vocab_size != other.vocab_size) {
    throw Error(
        fmt::format("{}: vocabulary of {}, unlike {} with {}; compare models with the same vocabulary",
                    one.file.string(), one.vocab_size, other.file.string(), other.vocab_size));
  }
  const std::array<Session*, 2> both = {&session, &reference};
  check_windows(both, text, options);
  DivergenceResult result;
  result.ctx = options.ctx.at(0);
  Comparison comparison({session, session.new_sequence()}, {reference, reference.new_sequence()}, options,
                        threads);
  result.complete = uninterrupted([&] {
    for (const Window& window : windows_of(options, result.ctx, text)) {
      comparison.run(window, text, result, progress);
      if (progress) progress(window.end);
    }
  });
  return result;
}

}  // namespace lariat
