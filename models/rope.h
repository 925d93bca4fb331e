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

// YaRN, YaRN-radix and their dynamic forms.
bool is_yarn(RopeType type);

std::string_view name_of(
    RopeType type);  // "default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", ...
std::optional<RopeType> find_rope_type(std::string_view name);    // the inverse
std::string known_rope_types(std::string_view separator = ", ");  // "default, linear, ...": what files say

// A model's rotary embedding and how it is stretched: the closed set of scalings of
// docs/context-extension.md.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  int64_t head_dim = 0;
  double partial_rotary_factor = 1.0;
  int64_t rotary_dim = 0;  // even: int(head_dim * partial_rotary_factor), plus `odd`; proportional: head_dim
  // That integer is odd: transformers rotates one dimension more and leaves it out of the exponents.
  bool odd = false;
  double theta = 10000.0;
  bool interleaved = false;  // pairing (x[2i], x[2i+1]) instead of (x[i], x[i + rotary_dim/2])
  // How far the positions are stretched. dynamic: the slope of its bracket. dynamic-yarn, dynamic-yarn-radix:
  // the largest scale; 1: no limit.
  double factor = 1.0;
  int64_t original_ctx = 0;  // L0: the context length the model was trained with
  int64_t max_position_embeddings = 0;
  // is_yarn
  double beta_fast = 32.0, beta_slow = 1.0;
  std::optional<double> attention_factor;  // longrope too
  double mscale = 0.0, mscale_all_dim = 0.0;
  bool truncate = true;
  // dynamic: the scale moves in so many steps per octave by the model's own formula (Qwen 1); 0: a session's
  int own_steps = 0;
  // llama3
  double low_freq_factor = 0.0, high_freq_factor = 0.0;
  // longrope: rotary_dim / 2 values each
  std::vector<double> short_factor, long_factor;

  int64_t exponent_dim() const { return rotary_dim - (odd ? 1 : 0); }  // d of theta^(-2i/d)
  // Whether inv_freq depends on the sequence's length: the dynamic types and longrope.
  bool depends_on_length() const;
  // Whether the scale grows with every token (on scale steps): the dynamic types.
  bool grows() const { return depends_on_length() && type != RopeType::kLongRope; }
  bool operator==(const RopeScaling&) const = default;
};

// The frequencies that a scaling gives for one sequence length.
struct RopeFrequencies {
  std::vector<double> inv_freq;  // rotary_dim / 2 values, radians per position
  // Multiplies cos and sin of both q and k in transformers; lariat puts its square into the rotated part of
  // q, so that cached keys are pure rotations.
  double attention_factor = 1.0;
  bool operator==(const RopeFrequencies&) const = default;
};

// Frequencies for a sequence of `length` tokens (a real number, since the length of a scale step is one).
// At or below original_ctx a dynamic scaling gives exactly the unscaled values.
RopeFrequencies rope_frequencies(const RopeScaling& rope, double length);

// DeepSeek's part of YaRN that multiplies all scores, the rotated part and the other: the square of the
// temperature for mscale_all_dim; 1 for other scalings (transformers 5.23, yarn_apply_mscale).
double rope_score_scale(const RopeScaling& rope);

// Sets rotary_dim and odd by type, head_dim and partial_rotary_factor.
void set_rotary_dim(RopeScaling& rope);

// The frequencies of the model without any scaling: theta^(-2i/d), attention factor 1. (A proportional
// embedding keeps its unrotated pairs.)
RopeFrequencies rope_unscaled(const RopeScaling& rope);

// How far a sequence of that length is stretched: the divisor of the slowest pair in linear, ntk, yarn and
// llama3; the factor for longrope beyond L0.
double rope_scale(const RopeScaling& rope, double length);

// The length that a dynamic scale sees: `length` itself at or below L0 or with steps_per_octave = 0
// ("exact"); otherwise `length` rounded up to the next scale step, L0 * 2^(i / steps_per_octave). A model's
// own steps come before that number. Static
// scalings do not care; longrope has only two sets of frequencies and is not rounded. Two lengths may have
// the same frequencies: compare those, not the steps, before re-rotating a cache.
double rope_step_length(const RopeScaling& rope, int64_t length, int steps_per_octave);

// The first fault of a scaling, as the config.json key to blame and the rest of the sentence; nullopt when
// it can be used.
struct RopeProblem {
  std::string key, what;
};
std::optional<RopeProblem> find_rope_problem(const RopeScaling& rope);

}  // namespace lariat
