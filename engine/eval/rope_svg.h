#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/eval/chart.h"
#include "models/positions/position_method.h"
#include "models/rope.h"

namespace lariat {

// The bound of RoFormer (arXiv 2104.09864, section 3.4.3) on how much attention can reach over `distance`
// tokens: the mean of |S_j|, j = 1..d/2, S_j = sum_{i < j} exp(i distance inv_freq[i]), relative to its value
// at distance 0.
double rope_decay(const std::vector<double>& inv_freq, double distance);

// The frequencies of so many pairs of sinusoidal positions, 10000^(-i/pairs) (arXiv 1706.03762, section 3.5).
std::vector<double> sinusoidal_frequencies(size_t pairs);

// A curve over distances 1..reach, log-spaced. The scores wiggle faster than a pixel; each point is the mean
// over the distances within an eighth of it.
Points over_distances(double reach, const std::function<double(double)>& decay);

// T5's bucket of a key that many tokens before its query (arXiv 1910.10683, section 2.1; transformers'
// _relative_position_bucket with 32 buckets up to distance 128, not bidirectional): the first 16 distances
// have their own, the others share 16 that grow with the logarithm.
int t5_bucket(int64_t distance);

// exp(-m distance) with ALiBi's slope m = 2^(-8 head / heads), head = 1..heads, a power of two (arXiv
// 2108.12409, section 3): what is left of a key's weight in the softmax.
double alibi_weight(int head, int heads, double distance);

// The score of a query and a key alike in every pair that rotates, relative to distance 0: the mean of
// cos(distance inv_freq[i]) (arXiv 2104.09864, section 3.4.3). The product of two sinusoidal positions is the
// same with their frequencies.
double rotary_score(const std::vector<double>& inv_freq, double distance);

// rotary_score in the mean over the distances [i w, (i + 1) w), w = tokens / stripes, which it divides.
std::vector<double> rotary_stripes(const std::vector<double>& inv_freq, int64_t tokens, int stripes);

// The part of rope_svg on kinds of positions: what each leaves of a score by distance, and maps of RoPE's
// scores over queries and keys at three lengths. Between left and right, from y, which moves to its end.
// `style`: the class of the curve of `rope` at `length`.
std::string positions_svg(const RopeScaling& rope, const std::string& style, double length, double reach,
                          double left, double right, double& y);

// A picture of all scalings of a model at one factor, as a self-contained SVG for light and dark pages: the
// frequency of each pair relative to the unscaled one, the wavelengths against L0, the long-range decay, and
// positions_svg.
// The factor is that of `rope` for a sequence of `length`, or length / L0 where it has none, or 4.
enum class RopePanels { kAll, kFrequencies, kDecay, kPositions };  // kFrequencies: and wavelengths
std::string rope_svg(const RopeScaling& rope, double length, RopePanels panels = RopePanels::kAll);

// The distances of a method as a map of queries and keys (PositionMethod::distance), beside those that the
// model was trained at.
std::string method_svg(const PositionMethod& method, int64_t trained, int64_t length);

// A whole picture, in the style of all of them, of what is inside.
std::string rope_picture(double width, double height, const std::string& name, const std::string& inside);

}  // namespace lariat
