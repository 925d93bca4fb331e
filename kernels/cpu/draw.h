#pragma once
#include <cstdint>

namespace lariat::cpu {

// A draw puts a row's finite tokens into bins by (largest logit - logit) / temperature, so that it sorts
// only the bins that contain a cut or the drawn token.
constexpr int32_t kDrawBins = 1024;
constexpr float kBinsPerUnit = 28.0F;  // tokens of the last bin weigh less than 2^-52: never drawn

// Number and weight of the tokens of a bin, or of the first tokens of a row.
struct Tally {
  double tokens = 0, weight = 0;

  Tally operator+(const Tally& other) const { return {tokens + other.tokens, weight + other.weight}; }
};

struct Candidate {
  float logit;
  int32_t id;
  double weight;  // exp((logit - largest) / temperature)
};

struct LogitRow {
  const float* logits;
  int64_t size;
  float largest, temperature;
  float bins_per_logit;
};

}  // namespace lariat::cpu
