#include "models/spec/rope_yarn.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lariat {

// The paper (arXiv 2309.00071, section 3.2) ramps in rotations; its code and transformers ramp in the pair's
// index. MiniMind and Jet-Long pass d/2 - 1 as `last`.
YarnRamp yarn_ramp(const RopeScaling& rope, double last) {
  const auto d = static_cast<double>(rope.rotary_dim);
  const auto pair_with_turns = [&](double turns) {
    return d * std::log(static_cast<double>(rope.original_ctx) / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_with_turns(rope.beta_fast), high = pair_with_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, last);
  if (low == high) high += 0.001;
  YarnRamp ramp{std::vector<double>(static_cast<size_t>(rope.rotary_dim / 2)), high - low};
  for (size_t i = 0; i < ramp.share.size(); ++i)
    ramp.share[i] = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  return ramp;
}

double yarn_mscale(double s, double weight) { return s <= 1.0 ? 1.0 : 0.1 * weight * std::log(s) + 1.0; }

// _compute_yarn_parameters. YaRN-radix (yarn_radix3 of github.com/mattian7/mrRoPE): f * s^-e with
// e = u (u + 1) / (m (m + 1)) for pair u of m on the ramp.
RopeFrequencies yarn_frequencies(const RopeScaling& rope, double s) {
  RopeFrequencies out = rope_unscaled(rope);
  const auto [ramp, m] = yarn_ramp(rope, static_cast<double>(rope.rotary_dim) - 1.0);
  const bool radix = rope.type == RopeType::kYarnRadix || rope.type == RopeType::kDynamicYarnRadix;
  for (size_t i = 0; i < ramp.size(); ++i) {
    const double f = out.inv_freq[i], share = ramp[i];
    out.inv_freq[i] =
        radix ? f * std::pow(s, -share * (share * m + 1.0) / (m + 1.0)) : f / s * share + f * (1.0 - share);
  }
  if (rope.attention_factor) {
    out.attention_factor = *rope.attention_factor;
  } else if (rope.mscale != 0.0 && rope.mscale_all_dim != 0.0) {
    out.attention_factor = yarn_mscale(s, rope.mscale) / yarn_mscale(s, rope.mscale_all_dim);
  } else {
    out.attention_factor = yarn_mscale(s, 1.0);
  }
  return out;
}

}  // namespace lariat
