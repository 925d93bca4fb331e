#pragma once
#include <vector>

#include "models/spec/rope.h"

namespace lariat {

// YaRN's ramp: find_correction_range and linear_ramp_factor of _compute_yarn_parameters.
struct YarnRamp {
  std::vector<double> share;  // per pair: 0 keeps the frequency, 1 divides it by the scale
  double pairs;               // pairs from the last share of 0 to the first share of 1
};
// last: largest pair index at the end of the ramp; d - 1 in transformers.
YarnRamp yarn_ramp(const RopeScaling& rope, double last);

// get_mscale of _compute_yarn_parameters: the temperature 0.1 ln s + 1 (YaRN, section 3.4).
double yarn_mscale(double s, double weight);

RopeFrequencies yarn_frequencies(const RopeScaling& rope, double s);

}  // namespace lariat
