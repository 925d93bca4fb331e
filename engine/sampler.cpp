#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "kernels/error.h"

namespace lariat {
namespace {

int32_t greedy(std::span<const float> logits) {
  size_t best = logits.size();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]) && (best == logits.size() || logits[i] > logits[best])) best = i;
  }
  if (best == logits.size() || !std::isfinite(logits[best])) {
    throw Error("the model's output is not a number; its weights are damaged or too large for this --dtype");
  }
  return static_cast<int32_t>(best);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  if (options_.repetition_penalty != 1.0F) {
    logits_.assign(logits.begin(), logits.end());
    penalise(history);
    logits = logits_;
  }
  const int32_t best = greedy(logits);
  if (options_.temperature <= 0.0F) return best;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i]))
      candidates_.push_back({logits[i] / options_.temperature, static_cast<int32_t>(i)});
  }
  keep_likely();
  return draw();
}

void Sampler::penalise(std::span<const int32_t> history) {
  std::vector<bool> seen(logits_.size());
  for (const int32_t id : history) {
    const auto i = static_cast<size_t>(id);
    if (i >= logits_.size() || seen[i]) continue;
    seen[i] = true;
    logits_[i] =
        logits_[i] > 0 ? logits_[i] / options_.repetition_penalty : logits_[i] * options_.repetition_penalty;
  }
}

// Sorts the candidates by falling logit (by id among equals), cuts them by top-k, top-p and min-p, and leaves
// their normalised probabilities.
void Sampler::keep_likely() {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size()) {
    const auto cut = candidates_.begin() + options_.top_k;
    std::partial_sort(candidates_.begin(), cut, candidates_.end(), likelier);
    candidates_.erase(cut, candidates_.end());
  } else {
    std::sort(candidates_.begin(), candidates_.end(), likelier);
  }
  probabilities_.resize(candidates_.size());
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += probabilities_[i] = std::exp(static_cast<double>(candidates_[i].logit) - candidates_[0].logit);
  }
  size_t keep = candidates_.size();
  if (options_.top_p < 1.0F) {
    double reached = 0;
    keep = 0;
    while (keep < candidates_.size() && (keep == 0 || reached < static_cast<double>(options_.top_p) * sum)) {
      reached += probabilities_[keep++];
    }
  }
  // probabilities_[0] is exp(0) = 1, so min_p compares with it directly.
  while (keep > 1 && probabilities_[keep - 1] < static_cast<double>(options_.min_p)) --keep;
  probabilities_.resize(keep);
  sum = 0;
  for (const double p : probabilities_) sum += p;
  for (double& p : probabilities_) p /= sum;
}

int32_t Sampler::draw() {
  // 53 bits by hand: std::uniform_real_distribution may differ between standard libraries.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53;
  for (size_t i = 0; i < probabilities_.size(); ++i) {
    if (left < probabilities_[i]) return candidates_[i].id;
    left -= probabilities_[i];
  }
  return candidates_[probabilities_.size() - 1].id;
}

}  // namespace lariat
