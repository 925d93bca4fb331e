#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace lariat {

// How the next token is chosen from logits. temperature = 0 is greedy and ignores the rest but the penalty.
struct SamplerOptions : Sampling {
  float repetition_penalty = 1.0F;  // divides positive logits of seen tokens, multiplies others (1909.05858)
  uint64_t seed = 0;
};

// Chooses tokens one after the other, where the logits are: only the token's id leaves the backend. The same
// seed and logits give the same tokens on every machine.
// Order, as in transformers: repetition penalty, temperature, top-k, top-p, min-p, draw.
class Sampler {
 public:
  Sampler(const SamplerOptions& options, Backend& backend);

  // Readies logits, f32 [1, vocab] in the backend's memory, for Backend::draw, which a repetition penalty
  // changes; returns the uniform number to draw with. history: the tokens so far (prompt included), for the
  // penalty, which is worked out on the host.
  double prepare(const Matrix& logits, std::span<const int32_t> history);
  // The token of what Backend::read_drawn gives. Throws Error when no logit was finite, naming what that
  // usually means.
  static int32_t checked(int32_t drawn);

 private:
  void penalise(const Matrix& logits, std::span<const int32_t> history);

  SamplerOptions options_;
  Backend& backend_;
  std::mt19937_64 random_;
  std::vector<float> host_;
};

}  // namespace lariat
