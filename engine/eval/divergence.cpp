#include "engine/eval/divergence.h"

#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/eval/windows.h"
#include "engine/interrupt.h"
#include "kernels/error.h"

namespace lariat {
namespace {

constexpr int64_t kKeptBytes = int64_t{64} << 20;  // of logits, for each model

Estimate exp_of(const Estimate& mean) {
  const double value = std::exp(mean.value);
  return {value, value * mean.error};
}

// What two sessions make of the same windows.
class Comparison {
 public:
  Comparison(Session& session, Session& reference, const PerplexityOptions& options, int threads)
      : sides_{Side{session}, Side{reference}},
        options_(options),
        threads_(threads > 0 ? threads : omp_get_num_procs()),
        vocab_(session.model().spec.vocab_size),
        rows_(std::max<int64_t>(1, kKeptBytes / (vocab_ * static_cast<int64_t>(sizeof(float))))) {}

  void run(const Window& window, TokenSource& text, DivergenceResult& result) {
    const int64_t bos = options_.bos ? 1 : 0;
    std::vector<int32_t> tokens(static_cast<size_t>(bos), options_.bos.value_or(0));
    const auto ids = text.range(window.begin, window.end);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    const auto last = static_cast<int64_t>(tokens.size()) - 1;         // whose logits predict nothing scored
    const int64_t first = window.score_from - window.begin + bos - 1;  // whose logits are the first that do
    for (Side& side : sides_) {
      side.sequence.truncate(0);
      side.sequence.expect(last + 1);  // a dynamic scale is that of the whole window
    }
    for (int64_t begin = 0, end = 0; begin < last; begin = end) {
      const int64_t from = std::max(begin, first);
      end = std::min(from + rows_, last);
      for (Side& side : sides_)
        read(side, std::span(tokens).subspan(index(begin), index(end - begin)), from - begin);
      compare(std::span(tokens).subspan(index(from + 1), index(end - from)), result);
    }
  }

 private:
  struct Side {
    explicit Side(Session& of) : session(of), sequence(of.new_sequence()) {}
    Session& session;
    Sequence sequence;
    std::vector<float> logits;  // of the wanted rows
  };

  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  void read(Side& side, std::span<const int32_t> tokens, int64_t logits_from) const {
    side.logits.resize((tokens.size() - index(logits_from)) * index(vocab_));
    const auto keep = [&](int64_t first, const Matrix& logits) {
      side.session.backend().copy_out(&side.logits[index((first - logits_from) * vocab_)], logits.data,
                                      index(logits.rows * vocab_) * sizeof(float));
    };
    stop_if(options_.interrupted);
    side.session.prefill(side.sequence, tokens, logits_from, keep,
                         [&](int64_t) { stop_if(options_.interrupted); });
  }

  // targets: what stands behind each kept row.
  void compare(std::span<const int32_t> targets, DivergenceResult& result) {
    const auto rows = static_cast<int64_t>(targets.size());
    compared_.resize(targets.size());
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = [&](const Side& side) {
        return std::span(side.logits).subspan(index(i * vocab_), index(vocab_));
      };
      compared_[index(i)] = diverge(row(sides_[0]), row(sides_[1]), targets[index(i)]);
    }
    for (const TokenDivergence& token : compared_) result.add(token);
  }

  std::array<Side, 2> sides_;  // the model, the reference
  const PerplexityOptions& options_;
  int threads_;
  int64_t vocab_, rows_;
  std::vector<TokenDivergence> compared_;
};

}  // namespace

Estimate MeanOf::over(int64_t n) const {
  const auto count = static_cast<double>(n);
  const double mean = sum / count, variance = squares / count - mean * mean;
  // Rounding may leave less than nothing; a NaN stays one.
  return {mean, n < 2 ? std::nan("") : std::sqrt(variance < 0 ? 0 : variance / (count - 1))};
}

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
  return {kl < 0 ? 0 : kl,  // by rounding
          b_log - (logits[at] - b_top), a_log - (reference[at] - a_top),
          top - logits.begin() == reference_top - reference.begin()};
}

void DivergenceResult::add(const TokenDivergence& token) {
  const double p = std::exp(-token.loss) - std::exp(-token.reference_loss);
  tokens += 1;
  same_tops += token.same_top ? 1 : 0;
  loss.add(token.loss);
  reference_loss.add(token.reference_loss);
  log_ratio.add(token.loss - token.reference_loss);
  kl.add(token.kl);
  difference.add(p);
  squared_difference.add(p * p);
  largest_difference = std::max(std::abs(p), largest_difference);
  kls.push_back(token.kl);
}

Estimate DivergenceResult::ppl() const { return exp_of(loss.over(tokens)); }
Estimate DivergenceResult::reference_ppl() const { return exp_of(reference_loss.over(tokens)); }
Estimate DivergenceResult::ppl_ratio() const { return exp_of(log_ratio.over(tokens)); }

Estimate DivergenceResult::rms_difference() const {
  const Estimate square = squared_difference.over(tokens);
  const double root = std::sqrt(square.value);
  return {root, root == 0 ? 0 : square.error / (2 * root)};
}

Estimate DivergenceResult::same_top() const {
  const auto n = static_cast<double>(tokens);
  const double share = static_cast<double>(same_tops) / n;
  return {share, tokens < 2 ? std::nan("") : std::sqrt(share * (1 - share) / (n - 1))};
}

double DivergenceResult::kl_at(double share) const {
  if (kls.empty() || std::isnan(kl.sum)) return std::nan("");
  std::vector<double> ordered = kls;
  std::sort(ordered.begin(), ordered.end());
  const double place = share * static_cast<double>(ordered.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double above = ordered[std::min(below + 1, ordered.size() - 1)];
  return std::lerp(ordered[below], above, place - std::floor(place));
}

DivergenceResult measure_divergence(
    Session& session, Session& reference, TokenSource& text, const std::string& text_name,
    const PerplexityOptions& options, int threads,
    const std::function<void(int64_t position, const DivergenceResult&)>& progress) {
  const ModelSpec &one = session.model().spec, &other = reference.model().spec;
  if (one.vocab_size != other.vocab_size) {
    throw Error(fmt::format(
        "{}: a vocabulary of {} and {} one of {}; a divergence is between models with the same one",
        one.file.string(), one.vocab_size, other.file.string(), other.vocab_size));
  }
  const std::array<Session*, 2> both = {&session, &reference};
  check_windows(both, text, text_name, options);
  DivergenceResult result;
  result.ctx = options.ctx.at(0);
  result.method = options.method;
  result.stride = options.method == PerplexityMethod::kSliding ? options.stride : 0;
  Comparison comparison(session, reference, options, threads);
  Windows windows(options, result.ctx);
  try {
    while (const auto window = windows.next(text)) {
      comparison.run(*window, text, result);
      if (progress) progress(window->end, result);
      text.forget(window->begin);
    }
    result.complete = true;
  } catch (const Interrupted&) {  // what was compared until then counts
  }
  return result;
}

}  // namespace lariat
