#include "engine/runtime/lookup.h"

#include <algorithm>

namespace lariat {

Lookup::Lookup() {
  for (size_t i = 0; i < hit_rates_.size(); ++i)
    hit_rates_[i] = static_cast<double>(i + 1) / static_cast<double>(i + 3);
}

// The rate of guess i: the guesses before it, if they are right, make the suffix longer.
double& Lookup::hit_rate(int64_t guess) {
  return hit_rates_[static_cast<size_t>(std::min(matched_ + guess, kLongestSuffix)) - 1];
}

// Compares the candidates with the tokens that followed. Unverified candidates cost nothing, so hit rates
// recover without a trial.
void Lookup::learn(std::span<const int32_t> text) {
  constexpr double kWeight = 0.125;  // of the latest guess in an average
  const auto followed = text.subspan(static_cast<size_t>(length_));
  for (size_t i = 0; i < std::min(followed.size(), candidates_.size()); ++i) {
    const bool hit = followed[i] == candidates_[i];
    double& rate = hit_rate(static_cast<int64_t>(i));
    rate += kWeight * ((hit ? 1.0 : 0.0) - rate);
    if (!hit) return;
  }
}

std::vector<int32_t> Lookup::guess(std::span<const int32_t> text, int64_t most, double row_cost) {
  learn(text);
  candidates_.clear();
  matched_ = 0;
  length_ = std::ssize(text);
  int64_t next = 0;  // index after the longest occurrence so far
  const auto from_end = [&](int64_t end, int64_t i) { return text[static_cast<size_t>(end - 1 - i)]; };
  for (int64_t end = length_ - 1; end > 0 && matched_ < kLongestSuffix; --end) {
    int64_t n = 0;
    while (n < std::min(end, kLongestSuffix) && from_end(end, n) == from_end(length_, n)) ++n;
    if (n > matched_) matched_ = n, next = end;
  }
  std::vector<int32_t> guesses;
  double likelihood = 1.0;
  for (int64_t i = 0; matched_ > 0 && i < kMostGuesses; ++i) {
    const int64_t at = next + i % (length_ - next);  // at its end the text repeats itself
    candidates_.push_back(text[static_cast<size_t>(at)]);
    likelihood *= hit_rate(i);
    if (likelihood >= row_cost && i < most) guesses.push_back(candidates_.back());
  }
  return guesses;
}

}  // namespace lariat
