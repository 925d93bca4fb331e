// Far frequencies of jet-long-freq.
#include <algorithm>
#include <cmath>

#include "models/positions/parse_position_method.h"
#include "tests/engine/position_cases.h"

namespace lariat::test {
namespace {

using FarFrequencies = OnLlama;

// Scales of Qwen3 for a trained length of 32,768, from the authors' code.
TEST_F(FarFrequencies, HaveTheAuthorsScales) {
  RopeScaling rope = model_.spec.rope();
  rope.head_dim = rope.rotary_dim = 128;
  rope.theta = 1e6;
  rope.original_ctx = 32768;
  const PositionMethod method = parse_position_method("jet-long-freq", 32768, 0);
  EXPECT_EQ(method.name, "jet-long-freq/window=2048/far=yarn/factor=auto");
  const std::vector<double> near(64, 1.0);
  for (const auto& [n, s, t] :
       {std::tuple(65536, 2.067, 1.073), {98304, 3.133, 1.114}, {131072, 4.2, 1.144}}) {
    const double scale = method.stretch(n);
    EXPECT_NEAR(scale, s, 1e-3);
    EXPECT_NEAR(method.temperature(9, scale), t, 1e-3);
    const auto [inv_freq, phases] = method.far(near, rope, scale);
    EXPECT_EQ(std::ranges::count(inv_freq, 1.0), 24);
    EXPECT_EQ(std::ranges::count_if(inv_freq, [&](double f) { return std::abs(f - 1 / scale) < 1e-12; }), 24);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(phases[i], 2048 * (1 - inv_freq[i]));
  }
}

// Factors per band of pairs; the model has 8 pairs.
TEST_F(FarFrequencies, OfBandsNeedOneFactorEach) {
  const auto name = [&](const std::string& settings) {
    const PositionMethod method = parse_position_method("jet-long-freq/" + settings, 64, 0);
    check_position_method(method, model_.spec);
    return method.name;
  };
  EXPECT_EQ(name("factors=1,2.50,1e2/far=bands"), "jet-long-freq/window=4/far=bands/factors=1,2.5,100");
  EXPECT_EQ(name("far=bands/factors=1,1,1,1,1,1,1,1"),
            "jet-long-freq/window=4/far=bands/factors=1,1,1,1,1,1,1,1");
  for (const auto& [settings, words] :
       {std::pair("far=bands", "far=bands without factors; add factors=A,B"),
        {"factors=2", "factors without far=bands; add far=bands"},
        {"far=bands/factor=auto/factors=2", "far=bands with factor and factors; remove factor"},
        {"far=bands/factors=2/factors=2", "factors is given twice"},
        {"far=bands/factors", "\"\" is not a factor; give numbers from 1"},
        {"far=bands/factors=2,", "\"\" is not a factor"},
        {"far=bands/factors=1,0.99", "\"0.99\" is not a factor"},
        {"far=bands/factors=nan,2", "\"nan\" is not a factor"},
        {"far=bands/factors=134217729", "134217729 | 134217728"},
        {"far=bands/factors=1,2,3,4,5,6,7,8,9", "9 factors for 8 pairs of dimensions; give at most 8"}})
    EXPECT_TRUE(names(error_of([&, at = settings] { name(at); }), words)) << settings;
}

}  // namespace
}  // namespace lariat::test
