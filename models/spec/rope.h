#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lariat {

enum class RopeType {
  kDefault,
  kLinear,
  kNtk,
  kDynamic,
  kYarn,
  kDynamicYarn,
  kLlama3,
  kLongRope,
  kProportional,
  kYarnRadix,
  kDynamicYarnRadix
};

bool is_yarn(RopeType type);

std::string_view name_of(RopeType type);
std::optional<RopeType> find_rope_type(std::string_view name);
std::string known_rope_types(std::string_view separator = ", ");

// RoPE and its scaling (docs/context-extension.md).
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  int64_t head_dim = 0;
  double partial_rotary_factor = 1.0;
  int64_t rotary_dim = 0;  // even: int(head_dim * partial_rotary_factor) plus `odd`; proportional: head_dim
  // head_dim * factor is odd: transformers rotates one more dimension, not counted in the exponents.
  bool odd = false;
  double theta = 10000.0;
  bool interleaved = false;  // pairs (x[2i], x[2i+1]) instead of (x[i], x[i + rotary_dim/2])
  // dynamic: slope of the formula in rope_scale. dynamic-yarn(-radix): largest scale; 1: no limit.
  double factor = 1.0;
  int64_t original_ctx = 0;  // L0: the trained context length
  int64_t max_position_embeddings = 0;
  // YaRN types
  double beta_fast = 32.0, beta_slow = 1.0;
  std::optional<double> attention_factor;  // also longrope
  double mscale = 0.0, mscale_all_dim = 0.0;
  bool truncate = true;
  // dynamic: steps per octave of the model's own formula (Qwen 1); 0: the session's
  int own_steps = 0;
  // llama3
  double low_freq_factor = 0.0, high_freq_factor = 0.0;
  // longrope: rotary_dim / 2 values each
  std::vector<double> short_factor, long_factor;

  int64_t exponent_dim() const { return rotary_dim - (odd ? 1 : 0); }  // d of theta^(-2i/d)
  // True for dynamic types and longrope: inv_freq depends on the length.
  bool depends_on_length() const;
  // True for dynamic types: the scale grows with the length.
  bool grows() const { return depends_on_length() && type != RopeType::kLongRope; }
  bool operator==(const RopeScaling&) const = default;
};

struct RopeFrequencies {
  std::vector<double> inv_freq;  // rotary_dim / 2 values, radians per position
  // Factor of cos and sin of q and k in transformers. lariat multiplies the rotated part of q by the square:
  // cached keys stay pure rotations.
  double attention_factor = 1.0;
  bool operator==(const RopeFrequencies&) const = default;
};

// length: in tokens; real, as scale steps are. A dynamic scaling is exactly unscaled up to original_ctx.
RopeFrequencies rope_frequencies(const RopeScaling& rope, double length);

// DeepSeek's YaRN factor of all scores: the squared temperature for mscale_all_dim; 1 for other scalings
// (transformers 5.23, yarn_apply_mscale).
double rope_score_scale(const RopeScaling& rope);

// Sets rotary_dim and odd.
void set_rotary_dim(RopeScaling& rope);

// "NTK-aware": theta' = theta * s^(d/(d-2)) stretches the slowest pair by s, keeps the fastest.
double ntk_theta(const RopeScaling& rope, double s);

// theta^(-2i/d), attention factor 1. Proportional RoPE keeps its unrotated pairs.
RopeFrequencies rope_unscaled(const RopeScaling& rope);

// Divisor of the slowest pair (linear, ntk, yarn, llama3); longrope's factor beyond L0.
double rope_scale(const RopeScaling& rope, double length);

// Length for a dynamic scale: the next scale step L0 * 2^(i / steps_per_octave); unchanged up to L0, with
// steps_per_octave = 0 ("exact"), and for other scalings. own_steps overrides steps_per_octave. Different
// lengths can share frequencies: compare frequencies before re-rotating a cache.
double rope_step_length(const RopeScaling& rope, int64_t length, int steps_per_octave);

// First invalid value: its config.json key, and the rest of the sentence.
struct RopeProblem {
  std::string key, what;
};
std::optional<RopeProblem> find_rope_problem(const RopeScaling& rope);

}  // namespace lariat
