#pragma once
#include <string>
#include <vector>

#include "engine/eval/render/chart.h"
#include "models/spec/position_method.h"
#include "models/spec/rope.h"

namespace lariat {

// Bound on attention over `distance` tokens (RoFormer, arXiv 2104.09864, section 3.4.3): mean of |S_j|, j =
// 1..d/2, S_j = sum_{i < j} exp(i distance inv_freq[i]), relative to its value at distance 0.
double rope_decay(const std::vector<double>& inv_freq, double distance);

// Frequencies of sinusoidal positions, 10000^(-i/pairs) (arXiv 1706.03762, section 3.5).
std::vector<double> sinusoidal_frequencies(size_t pairs);

// Dot product of two sinusoidal positions, relative to distance 0: mean of cos(distance inv_freq[i]).
double sinusoidal_score(const std::vector<double>& inv_freq, double distance);

// Compares all scalings at one factor: each pair's frequency relative to the unscaled one, wavelengths
// compared with L0, and long-range decay; of a position method, the distances that the last token sees. The
// factor is `rope`'s scale at `length`, else length / L0 if above 1, else 4.
enum class RopePanels { kAll, kFrequencies, kDecay };  // kFrequencies: with wavelengths
std::string rope_svg(const RopeScaling& rope, double length, RopePanels panels = RopePanels::kAll,
                     const PositionMethod& method = {});

}  // namespace lariat
