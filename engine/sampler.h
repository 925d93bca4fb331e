#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace lariat {

// How the next token is chosen from logits. temperature = 0 is greedy and ignores the rest but the penalty.
struct SamplerOptions {
  float temperature = 0.0F;
  int32_t top_k = 0;   // keep the k likeliest; 0: all
  float top_p = 1.0F;  // keep the likeliest that together reach p (arXiv 1904.09751); 1: all
  float min_p = 0.0F;  // keep those with p >= min_p * p_max (arXiv 2407.01082); 0: all
  float repetition_penalty =
      1.0F;  // seen tokens: positive logits divided by it, negative multiplied (1909.05858)
  uint64_t seed = 0;
};

// Chooses tokens one after the other; the same seed and logits give the same tokens on every machine.
// Order, as in transformers: repetition penalty, temperature, top-k, top-p, min-p, draw.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // logits: one per id of the vocabulary. history: the tokens so far (prompt included), for the penalty.
  // Throws Error when no logit is finite, naming what that usually means.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void penalise(std::span<const int32_t> history);
  void keep_likely();
  int32_t draw();

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;
  std::vector<double> probabilities_;
};

}  // namespace lariat
