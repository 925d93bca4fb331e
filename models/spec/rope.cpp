#include "models/spec/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "kernels/counted.h"
#include "models/spec/rope_yarn.h"

// transformers 5.23, modeling_rope_utils.py (functions named below), in double instead of float32.

namespace lariat {
namespace {

constexpr std::array<std::pair<RopeType, std::string_view>, 11> kNames{{
    {RopeType::kDefault, "default"},
    {RopeType::kLinear, "linear"},
    {RopeType::kNtk, "ntk"},
    {RopeType::kDynamic, "dynamic"},
    {RopeType::kYarn, "yarn"},
    {RopeType::kDynamicYarn, "dynamic-yarn"},
    {RopeType::kLlama3, "llama3"},
    {RopeType::kLongRope, "longrope"},
    {RopeType::kProportional, "proportional"},
    {RopeType::kYarnRadix, "yarn-radix"},
    {RopeType::kDynamicYarnRadix, "dynamic-yarn-radix"},
}};

using Frequencies = std::vector<double>;

// theta^(-2i/d): RoFormer (arXiv 2104.09864) section 3.2.2.
Frequencies powers(double theta, int64_t dim, int64_t count) {
  Frequencies f(static_cast<size_t>(count));
  for (size_t i = 0; i < f.size(); ++i)
    f[i] = 1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
  return f;
}

Frequencies divided(Frequencies f, double factor) {
  for (double& x : f) x /= factor;
  return f;
}

// _compute_llama3_parameters: keeps wavelengths up to L0 / high_freq_factor, divides those beyond
// L0 / low_freq_factor, ramps between them in rotations.
Frequencies llama3(const RopeScaling& rope, double s) {
  Frequencies f = powers(rope.theta, rope.exponent_dim(), rope.rotary_dim / 2);
  const auto l0 = static_cast<double>(rope.original_ctx);
  const double low = rope.low_freq_factor, high = rope.high_freq_factor;
  for (double& x : f) {
    const double wavelength = 2.0 * std::numbers::pi / x;
    if (wavelength < l0 / high) continue;
    if (wavelength > l0 / low) {
      x /= s;
    } else {
      const double keep = (l0 / wavelength - low) / (high - low);
      x = (1.0 - keep) * x / s + keep * x;
    }
  }
  return f;
}

// _compute_longrope_parameters.
RopeFrequencies longrope(const RopeScaling& rope, double length) {
  const auto l0 = static_cast<double>(rope.original_ctx);
  const Frequencies& stretch = length > l0 ? rope.long_factor : rope.short_factor;
  RopeFrequencies out{powers(rope.theta, rope.exponent_dim(), rope.rotary_dim / 2)};
  for (size_t i = 0; i < out.inv_freq.size(); ++i) out.inv_freq[i] /= stretch[i];
  if (rope.attention_factor) {
    out.attention_factor = *rope.attention_factor;
  } else if (rope.factor > 1.0) {
    out.attention_factor = std::sqrt(1.0 + std::log(rope.factor) / std::log(l0));
  }
  return out;
}

// _compute_proportional_rope_parameters: the first int(p * head_dim // 2) pairs rotate as in a fully rotated
// head; the others have frequency 0.
Frequencies proportional(const RopeScaling& rope) {
  const auto turning =
      static_cast<int64_t>(std::floor(rope.partial_rotary_factor * static_cast<double>(rope.head_dim) / 2.0));
  Frequencies f = powers(rope.theta, rope.head_dim, turning);
  f.resize(static_cast<size_t>(rope.rotary_dim / 2), 0.0);
  return f;
}

}  // namespace

std::string_view name_of(RopeType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "?";
}

std::optional<RopeType> find_rope_type(std::string_view name) {
  for (const auto& [type, known] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::string known_rope_types(std::string_view separator) {
  std::string list;
  for (const auto& [type, name] : kNames) list.append(list.empty() ? "" : separator).append(name);
  return list;
}

bool is_yarn(RopeType type) {
  return type == RopeType::kYarn || type == RopeType::kDynamicYarn || type == RopeType::kYarnRadix ||
         type == RopeType::kDynamicYarnRadix;
}

bool RopeScaling::depends_on_length() const {
  return type == RopeType::kDynamic || type == RopeType::kDynamicYarn ||
         type == RopeType::kDynamicYarnRadix || type == RopeType::kLongRope;
}

void set_rotary_dim(RopeScaling& rope) {
  const bool whole = rope.type == RopeType::kProportional;
  const double share = whole ? 1.0 : rope.partial_rotary_factor;
  const auto dim = static_cast<int64_t>(static_cast<double>(rope.head_dim) * share);
  rope.odd = dim % 2 != 0;
  rope.rotary_dim = dim + dim % 2;
}

double ntk_theta(const RopeScaling& rope, double s) {
  const auto d = static_cast<double>(rope.exponent_dim());
  return rope.theta * std::pow(s, d / (d - 2.0));
}

RopeFrequencies rope_unscaled(const RopeScaling& rope) {
  if (rope.type == RopeType::kProportional) return {proportional(rope), 1.0};
  return {powers(rope.theta, rope.exponent_dim(), rope.rotary_dim / 2), 1.0};
}

RopeFrequencies rope_frequencies(const RopeScaling& rope, double length) {
  const double scale = rope_scale(rope, length);
  switch (rope.type) {
    case RopeType::kDefault:
      return rope_unscaled(rope);
    case RopeType::kLinear:
    case RopeType::kProportional:
      return {divided(rope_unscaled(rope).inv_freq, scale), 1.0};
    case RopeType::kNtk:
    case RopeType::kDynamic:
      return {powers(ntk_theta(rope, scale), rope.exponent_dim(), rope.rotary_dim / 2), 1.0};
    case RopeType::kYarn:
    case RopeType::kYarnRadix:
      return yarn_frequencies(rope, scale);
    case RopeType::kDynamicYarn:
    case RopeType::kDynamicYarnRadix:
      return scale > 1.0 ? yarn_frequencies(rope, scale) : rope_unscaled(rope);
    case RopeType::kLlama3:
      return {llama3(rope, scale), 1.0};
    case RopeType::kLongRope:
      return longrope(rope, length);
  }
  return rope_unscaled(rope);
}

double rope_scale(const RopeScaling& rope, double length) {
  const auto l0 = static_cast<double>(rope.original_ctx);
  const bool beyond = length > l0;
  if (rope.type == RopeType::kDefault || (rope.depends_on_length() && !beyond)) return 1.0;
  // _compute_dynamic_ntk_parameters.
  if (rope.type == RopeType::kDynamic) return rope.factor * length / l0 - (rope.factor - 1.0);
  if (rope.grows()) return rope.factor > 1.0 ? std::min(length / l0, rope.factor) : length / l0;
  return rope.factor;
}

double rope_step_length(const RopeScaling& rope, int64_t length, int steps_per_octave) {
  const auto n = static_cast<double>(length), l0 = static_cast<double>(rope.original_ctx);
  if (rope.own_steps > 0) steps_per_octave = rope.own_steps;
  if (!rope.grows() || length <= rope.original_ctx || steps_per_octave <= 0) return n;
  const auto step = [&](double i) { return l0 * std::exp2(i / steps_per_octave); };
  double i = 1;
  while (step(i) < n) ++i;
  return step(i);
}

std::optional<RopeProblem> find_rope_problem(const RopeScaling& rope) {
  const auto needs = [](const char* key, const std::string& what) { return RopeProblem{key, what}; };
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > rope.head_dim) {
    return needs("partial_rotary_factor", "rotates " + std::to_string(rope.rotary_dim) + " of " +
                                              std::to_string(rope.head_dim) +
                                              " dimensions of a head; expected an even number of at least 2");
  }
  if (!std::isfinite(rope.theta) || rope.theta <= 1.0 || rope.theta > 1e15)
    return needs("rope_theta", "expected a number above 1, at most 1e15");
  // transformers accepts a yarn factor below 1; the lengths may imply one for longrope.
  const bool shrinks = rope.type == RopeType::kYarn || rope.type == RopeType::kLongRope;
  const double least = shrinks ? 1e-6 : 1.0;
  if (!std::isfinite(rope.factor) || rope.factor < least || rope.factor > 1e6)
    return needs("factor", "expected a number from 1 to 1000000");
  if (rope.original_ctx < 1) return needs("original_max_position_embeddings", "expected a positive integer");
  if ((rope.type == RopeType::kNtk || rope.type == RopeType::kDynamic) && rope.exponent_dim() < 3)
    return needs("rope_type", "NTK scaling needs at least 3 rotary dimensions; use another type");
  if (rope.odd && is_yarn(rope.type)) {
    return needs("partial_rotary_factor", "rotates " + std::to_string(rope.exponent_dim()) + " of " +
                                              std::to_string(rope.head_dim) +
                                              " dimensions; expected an even number for YaRN");
  }
  if (rope.type == RopeType::kProportional &&
      rope.partial_rotary_factor * static_cast<double>(rope.head_dim) < 2.0)
    return needs("partial_rotary_factor", "expected at least one rotated pair");
  if (rope.type == RopeType::kLlama3 && rope.low_freq_factor <= 0.0)
    return needs("low_freq_factor", "expected a number above 0");
  if (rope.type == RopeType::kLlama3 && rope.high_freq_factor <= rope.low_freq_factor)
    return needs("high_freq_factor", "expected a number above low_freq_factor");
  if (rope.type == RopeType::kLongRope) {
    const auto pairs = static_cast<size_t>(rope.rotary_dim / 2);
    for (const auto& [key, list] :
         {std::pair("short_factor", &rope.short_factor), std::pair("long_factor", &rope.long_factor)}) {
      if (list->size() != pairs) {
        return needs(key, "has " + counted(list->size(), "value") + "; expected " + std::to_string(pairs) +
                              ", one for each pair");
      }
    }
    if (rope.original_ctx < 2) return needs("original_max_position_embeddings", "expected at least 2");
  }
  return std::nullopt;
}

double rope_score_scale(const RopeScaling& rope) {
  if (rope.type != RopeType::kYarn) return 1.0;
  const double temperature = yarn_mscale(rope.factor, rope.mscale_all_dim);
  return temperature * temperature;
}

}  // namespace lariat
