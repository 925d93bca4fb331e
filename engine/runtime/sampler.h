#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace lariat {

// temperature = 0 is greedy decoding and uses only the repetition penalty.
struct SamplerOptions : Sampling {
  float repetition_penalty = 1.0F;  // divides positive logits of seen tokens, multiplies others (1909.05858)
  uint64_t seed = 0;
};

// Samples on the backend; only token ids are copied to the host. Equal seeds and logits give equal tokens on
// every machine. Order as in transformers: repetition penalty, temperature, top-k, top-p, min-p, draw.
class Sampler {
 public:
  Sampler(const SamplerOptions& options, Backend& backend);

  // Applies the repetition penalty to logits, f32 [1, vocab] in backend memory. Returns the uniform number
  // for Backend::draw. history: all tokens, including the prompt.
  double prepare(const Matrix& logits, std::span<const int32_t> history);
  // Throws Error if no logit was finite.
  static int32_t checked(int32_t drawn);

 private:
  void penalise(const Matrix& logits, std::span<const int32_t> history);

  SamplerOptions options_;
  Backend& backend_;
  std::mt19937_64 random_;
  std::vector<float> host_;
};

}  // namespace lariat
