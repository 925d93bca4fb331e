#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lariat {

// Prompt lookup decoding: guesses that the text continues as it did after the latest earlier occurrence of
// its longest suffix of up to 8 tokens.
class Lookup {
 public:
  static constexpr int64_t kMostGuesses = 7;

  Lookup();
  // Returns up to `most` guesses of the tokens after `text`, which has grown since the last call. row_cost:
  // the cost of a guess, as a share of the cost of a decode step, which a right guess saves. Guesses end
  // where they are right less often.
  std::vector<int32_t> guess(std::span<const int32_t> text, int64_t most, double row_cost);

 private:
  static constexpr int64_t kLongestSuffix = 8;

  void learn(std::span<const int32_t> text);
  double& hit_rate(int64_t guess);

  // Share of right guesses after suffixes of 1 to 8 tokens, averages that favour the latest.
  std::array<double, kLongestSuffix> hit_rates_{};
  std::vector<int32_t>
      candidates_{};  // the last kMostGuesses guesses, whether or not they were worth their cost
  int64_t matched_ = 0, length_ = 0;  // lengths of the suffix and of the text before the candidates
};

}  // namespace lariat
