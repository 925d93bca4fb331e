#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/error.h"
#include "models/positions/position_row.h"
#include "models/spec/rope_yarn.h"

namespace lariat {
namespace {

// Ratios f' / f of far to near frequencies, per pair.
using Ratios = std::function<std::vector<double>(const RopeScaling& rope, double s)>;

// The ramp ends at pair d/2 - 1 at the latest, as in the authors' code.
std::vector<double> yarn_ratios(const RopeScaling& rope, double s) {
  const int64_t last = rope.rotary_dim / 2 - 1;
  RopeScaling yarn = rope;
  yarn.beta_fast = 32, yarn.beta_slow = 1, yarn.truncate = true;
  std::vector<double> ratios = yarn_ramp(yarn, static_cast<double>(last)).share;
  for (double& r : ratios) r = 1 - r * (1 - 1 / s);
  return ratios;
}

// theta * s^(d / (d - 2)).
std::vector<double> ntk_ratios(const RopeScaling& rope, double s) {
  std::vector<double> ratios(static_cast<size_t>(rope.rotary_dim / 2), 1);
  const auto d = static_cast<double>(rope.exponent_dim());
  for (size_t i = 1; i < ratios.size(); ++i) ratios[i] = std::pow(s, -2 * static_cast<double>(i) / (d - 2));
  return ratios;
}

std::vector<double> linear_ratios(const RopeScaling& rope, double s) {
  return std::vector<double>(static_cast<size_t>(rope.rotary_dim / 2), 1 / s);
}

// A factor per band of pairs, fastest pairs first (DPE, arXiv 2504.18857, without its rounded positions).
Ratios band_ratios(std::span<const double> factors) {
  return [bands = std::vector(factors.begin(), factors.end())](const RopeScaling& rope, double) {
    std::vector<double> ratios(static_cast<size_t>(rope.rotary_dim / 2));
    if (bands.size() > ratios.size())
      throw UsageError(fmt::format("{} factors for {} pairs of dimensions; give at most {}", bands.size(),
                                   ratios.size(), ratios.size()));
    for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = 1 / bands[i * bands.size() / ratios.size()];
    return ratios;
  };
}

// Keys up to distance w use frequencies f. Farther keys use a second copy, rotated by f': the angle at
// distance d is w f + (d - w) f'.
PositionMethod make_jet_long_freq(const PositionValues& values, int64_t trained) {
  const int64_t w = values.get("window");
  const std::string_view far = values.word("far");
  const bool bands = far == "bands", factors = values.has("factors");
  if (bands && !factors) throw UsageError("far=bands without factors; add factors=A,B,...");
  if (!bands && factors) throw UsageError("factors without far=bands; add far=bands");
  if (bands && values.has("factor")) throw UsageError("far=bands with factor and factors; remove factor");
  const Ratios ratios = bands           ? band_ratios(values.of("factors").numbers)
                        : far == "yarn" ? yarn_ratios
                        : far == "ntk"  ? ntk_ratios
                                        : linear_ratios;
  const KeyEdge near = nearer(w + 1);
  PositionMethod method{.positions = {{}, {}, [](int64_t p, double) { return static_cast<double>(p); }},
                        .ranges = {{near, kOwnEnd, 0}, {kTextBegin, near, 1, 2}},
                        .unstretched = unstretched_ranges(),
                        .far = [=](std::span<const double> inv_freq, const RopeScaling& rope, double s) {
                          PositionMethod::FarRope of{ratios(rope, s), {}};
                          for (size_t i = 0; i < inv_freq.size(); ++i) {
                            of.inv_freq[i] *= inv_freq[i];
                            of.phases.push_back(static_cast<double>(w) * (inv_freq[i] - of.inv_freq[i]));
                          }
                          return of;
                        }};
  method.stretch = bands ? [most = std::ranges::max(values.of("factors").numbers)](double) { return most; }
                         : far_divisor(w, values.of("factor"), trained);
  if (far == "yarn") method.temperature = [](int64_t, double s) { return yarn_mscale(s, 1); };
  return method;
}

}  // namespace

// Jet-Long-Freq (github.com/jet-ai-projects/Jet-Long); the authors use far=yarn.
PositionRow jet_long_freq_row() {
  using enum PositionKey::Kind;
  return {"jet-long-freq",
          {{"window", [](int64_t trained, int64_t) { return trained / 16; }},
           {"far", [](int64_t, int64_t) { return kFirstWord; }, {"yarn", "ntk", "linear", "bands"}, kWord},
           {"factor", [](int64_t, int64_t) { return kFirstWord; }, {"auto"}, kReal},
           {"factors", nullptr, {}, kList}},
          make_jet_long_freq};
}

}  // namespace lariat
