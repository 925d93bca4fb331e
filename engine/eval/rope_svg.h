#pragma once
#include <string>
#include <vector>

#include "models/rope.h"

namespace lariat {

// The bound of RoFormer (arXiv 2104.09864, section 3.4.3) on how much attention can reach over `distance`
// tokens: the mean of |S_j|, j = 1..d/2, S_j = sum_{i < j} exp(i distance inv_freq[i]), relative to its value
// at distance 0.
double rope_decay(const std::vector<double>& inv_freq, double distance);

// The same for sinusoidal positions (arXiv 1706.03762, section 3.5) of that many pairs: |p_m . p_n| / |p|^2
// for |m - n| = distance.
double sinusoidal_decay(size_t pairs, double distance);

// A picture of all scalings of a model at one factor, as a self-contained SVG for light and dark pages: the
// frequency of each pair relative to the unscaled one, the wavelengths against L0, and the long-range decay.
// The factor is that of `rope` for a sequence of `length`, or length / L0 where it has none, or 4.
std::string rope_svg(const RopeScaling& rope, double length);

}  // namespace lariat
