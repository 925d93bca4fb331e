#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace lariat {

struct TokenLogprob {
  int32_t token;
  double logprob;  // ln p
};

// Score of one token under a row of logits.
struct TokenScore {
  double logprob = 0;             // ln p; NaN if a logit is NaN or +inf
  bool likeliest = false;         // argmax; ties: the smallest id
  std::vector<TokenLogprob> top;  // the top N tokens, by falling logit
};

// Host copy of a row of logits, f32 [1, vocab]: ln p = logit - ln sum exp, in double.
class Logprobs {
 public:
  Logprobs(Backend& backend, const Matrix& logits, int64_t top);
  TokenScore of(int32_t token) const;
  TokenLogprob likeliest() const { return {likeliest_, -loss_}; }

 private:
  std::vector<float> logits_;
  int32_t likeliest_;
  double loss_;  // -ln p of likeliest_
  std::vector<TokenLogprob> top_;
};

}  // namespace lariat
