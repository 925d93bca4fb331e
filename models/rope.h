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

bool is_yarn(RopeType type);  // YaRN, YaRN-radix and their dynamic forms

std::string_view name_of(RopeType type);                        // "default", "linear", "ntk", "dynamic", ...
std::optional<RopeType> find_rope_type(std::string_view name);  // inverse of name_of
std::string known_rope_types(std::string_view separator = ", ");  // "default, linear, ...": names in files

// A model's rotary embedding and its scaling (docs/context-extension.md).
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  int64_t head_dim = 0;
  double partial_rotary_factor = 1.0;
  int64_t rotary_dim = 0;  // even: int(head_dim * partial_rotary_factor), plus `odd`; proportional: head_dim
  // head_dim * factor is odd: transformers rotates one more dimension and omits it from the exponents.
  bool odd = false;
  double theta = 10000.0;
  bool interleaved = false;  // pairs (x[2i], x[2i+1]) instead of (x[i], x[i + rotary_dim/2])
  // Scale. dynamic: slope of the formula in rope_scale. dynamic-yarn, dynamic-yarn-radix: the largest scale;
  // 1: no limit.
  double factor = 1.0;
  int64_t original_ctx = 0;  // L0: the trained context length
  int64_t max_position_embeddings = 0;
  // YaRN types (is_yarn)
  double beta_fast = 32.0, beta_slow = 1.0;
  std::optional<double> attention_factor;  // also longrope
  double mscale = 0.0, mscale_all_dim = 0.0;
  bool truncate = true;
  // dynamic: steps per octave of the model's own formula (Qwen 1); 0: the session's steps
  int own_steps = 0;
  // llama3
  double low_freq_factor = 0.0, high_freq_factor = 0.0;
  // longrope: rotary_dim / 2 values each
  std::vector<double> short_factor, long_factor;

  int64_t exponent_dim() const { return rotary_dim - (odd ? 1 : 0); }  // d of theta^(-2i/d)
  // True if inv_freq depends on the sequence length (dynamic types, longrope).
  bool depends_on_length() const;
  // True if the scale grows with every token, on scale steps (dynamic types).
  bool grows() const { return depends_on_length() && type != RopeType::kLongRope; }
  bool operator==(const RopeScaling&) const = default;
};

// Frequencies of a scaling for one sequence length.
struct RopeFrequencies {
  std::vector<double> inv_freq;  // rotary_dim / 2 values, radians per position
  // Factor of cos and sin of q and k in transformers. lariat multiplies only the rotated part of q, by the
  // square: cached keys stay pure rotations.
  double attention_factor = 1.0;
  bool operator==(const RopeFrequencies&) const = default;
};

// Frequencies for a sequence of `length` tokens (real: scale steps have real lengths). At or below
// original_ctx a dynamic scaling returns exactly the unscaled values.
RopeFrequencies rope_frequencies(const RopeScaling& rope, double length);

// DeepSeek's YaRN factor of all scores, rotated part or not: the squared temperature for mscale_all_dim; 1
// for other scalings (transformers 5.23, yarn_apply_mscale).
double rope_score_scale(const RopeScaling& rope);

// Sets rotary_dim and odd from type, head_dim and partial_rotary_factor.
void set_rotary_dim(RopeScaling& rope);

// Unscaled frequencies theta^(-2i/d), attention factor 1. Proportional RoPE keeps its unrotated pairs.
RopeFrequencies rope_unscaled(const RopeScaling& rope);

// Scale at `length`: divisor of the slowest pair (linear, ntk, yarn, llama3); longrope's factor beyond L0.
double rope_scale(const RopeScaling& rope, double length);

// Length for a dynamic scale: `length` at or below L0 or with steps_per_octave = 0 ("exact"), otherwise the
// next scale step L0 * 2^(i / steps_per_octave). RopeScaling::own_steps overrides steps_per_octave. Static
// scalings and longrope are not rounded. Different lengths can share frequencies: compare frequencies, not
// steps, before re-rotating a cache.
double rope_step_length(const RopeScaling& rope, int64_t length, int steps_per_octave);

// First invalid value of a scaling: its config.json key and the rest of the sentence.
struct RopeProblem {
  std::string key, what;
};
std::optional<RopeProblem> find_rope_problem(const RopeScaling& rope);

}  // namespace lariat
