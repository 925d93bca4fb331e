#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lariat {

// Prompt lookup decoding: guesses the tokens after the latest earlier occurrence of the text's longest
// suffix, of up to 8 tokens.
class Lookup {
 public:
  static constexpr int64_t kMostGuesses = 7;

  Lookup();
  // Guesses up to `most` tokens after `text`, which contains the text of the last call. row_cost: cost of
  // verifying a guess, as a share of the decode step that a right guess saves. Skips guesses with a smaller
  // hit rate.
  std::vector<int32_t> guess(std::span<const int32_t> text, int64_t most, double row_cost);

 private:
  static constexpr int64_t kLongestSuffix = 8;

  void learn(std::span<const int32_t> text);
  double& hit_rate(int64_t guess);

  // Moving averages after suffixes of 1 to 8 tokens.
  std::array<double, kLongestSuffix> hit_rates_{};
  std::vector<int32_t> candidates_{};  // the last kMostGuesses guesses
  int64_t matched_ = 0, length_ = 0;   // lengths of the suffix and of the text before the candidates
};

}  // namespace lariat
