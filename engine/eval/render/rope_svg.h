#pragma once
#include <string>
#include <vector>

#include "engine/eval/render/chart.h"
#include "models/rope.h"

namespace lariat {

// The bound of RoFormer (arXiv 2104.09864, section 3.4.3) on how much attention can reach over `distance`
// tokens: the mean of |S_j|, j = 1..d/2, S_j = sum_{i < j} exp(i distance inv_freq[i]), relative to its value
// at distance 0.
double rope_decay(const std::vector<double>& inv_freq, double distance);

// The frequencies of so many pairs of sinusoidal positions, 10000^(-i/pairs) (arXiv 1706.03762, section 3.5).
std::vector<double> sinusoidal_frequencies(size_t pairs);

// The product of two sinusoidal positions with these frequencies, relative to distance 0: the mean of
// cos(distance inv_freq[i]).
double sinusoidal_score(const std::vector<double>& inv_freq, double distance);

// A picture of all scalings of a model at one factor, as a self-contained SVG for light and dark pages: the
// frequency of each pair relative to the unscaled one, the wavelengths against L0, and the long-range decay.
// The factor is that of `rope` for a sequence of `length`, or length / L0 where it has none, or 4.
enum class RopePanels { kAll, kFrequencies, kDecay };  // kFrequencies: and wavelengths
std::string rope_svg(const RopeScaling& rope, double length, RopePanels panels = RopePanels::kAll);

}  // namespace lariat
