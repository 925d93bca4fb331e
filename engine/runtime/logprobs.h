#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace lariat {

struct TokenLogprob {
  int32_t token;
  double logprob;  // ln p
};

// What logits say of one token.
struct TokenScore {
  double logprob = 0;             // NaN where a logit is NaN or +inf
  bool likeliest = false;         // the first of those with the largest logit
  std::vector<TokenLogprob> top;  // the likeliest of all, in their order
};

// A row of logits, f32 [1, vocab] in the backend's memory, kept: ln p = logit - ln sum exp, in double.
class Logprobs {
 public:
  Logprobs(Backend& backend, const Matrix& logits, int64_t top);
  TokenScore of(int32_t token) const;

 private:
  std::vector<float> logits_;
  int32_t likeliest_;
  double loss_;  // of that one
  std::vector<TokenLogprob> top_;
};

}  // namespace lariat
