#include "models/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lariat {
namespace {

RopeScaling model(RopeType type, double factor = 1.0, int64_t l0 = 4096, double theta = 1e4,
                  int64_t dim = 128) {
  RopeScaling rope;
  rope.type = type;
  rope.head_dim = rope.rotary_dim = dim;
  rope.theta = theta;
  rope.factor = factor;
  rope.original_ctx = l0;
  rope.max_position_embeddings = l0;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  return rope;
}

double turns(double inv_freq, double length) { return length * inv_freq / (2.0 * std::numbers::pi); }

TEST(Rope, NamesAreTheInverseOfParsing) {
  for (const char* name : {"default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", "llama3",
                           "longrope", "proportional"}) {
    EXPECT_EQ(name_of(*find_rope_type(name)), name);
  }
  EXPECT_FALSE(find_rope_type("YaRN")) << "files are read as transformers reads them";
  EXPECT_FALSE(find_rope_type("none"));
}

TEST(Rope, DefaultIsThePowersOfTheta) {
  const auto got = rope_frequencies(model(RopeType::kDefault), 100000);
  ASSERT_EQ(got.inv_freq.size(), 64U);
  EXPECT_EQ(got.inv_freq[0], 1.0);
  EXPECT_DOUBLE_EQ(got.inv_freq[16], 0.1);
  EXPECT_DOUBLE_EQ(got.inv_freq[32], 0.01);
  EXPECT_DOUBLE_EQ(got.inv_freq[48], 0.001);
  EXPECT_EQ(got.attention_factor, 1.0);
}

TEST(Rope, LinearDividesEveryPair) {
  const auto plain = rope_unscaled(model(RopeType::kLinear));
  const auto got = rope_frequencies(model(RopeType::kLinear, 8.0), 1);
  for (size_t i = 0; i < plain.inv_freq.size(); ++i) EXPECT_EQ(got.inv_freq[i], plain.inv_freq[i] / 8.0);
}

// Static NTK leaves the fastest pair and stretches the slowest by exactly s.
TEST(Rope, NtkStretchesTheSlowestPairByTheFactor) {
  for (const int64_t dim : {4, 8, 64, 128}) {
    const auto rope = model(RopeType::kNtk, 4.0, 4096, 5e5, dim);
    const auto plain = rope_unscaled(rope).inv_freq, got = rope_frequencies(rope, 1).inv_freq;
    EXPECT_EQ(got.front(), plain.front());
    EXPECT_NEAR(got.back() / plain.back(), 0.25, 1e-12);
    for (size_t i = 1; i < got.size(); ++i) EXPECT_LT(got[i], got[i - 1]);
  }
}

// With factor 1 the bracket is length / L0; with factor s at 2 L0 it is s + 1.
TEST(Rope, DynamicIsNtkAtItsBracket) {
  EXPECT_EQ(rope_frequencies(model(RopeType::kDynamic), 16384),
            rope_frequencies(model(RopeType::kNtk, 4.0), 1));
  EXPECT_EQ(rope_frequencies(model(RopeType::kDynamic, 2.0), 8192),
            rope_frequencies(model(RopeType::kNtk, 3.0), 1));
  // theta' by hand: d = 128, 1e4 * 3^(128/126) = 30527.7...
  const auto got = rope_frequencies(model(RopeType::kDynamic, 2.0), 8192).inv_freq;
  EXPECT_NEAR(1.0 / std::pow(got[1], 64.0), 1e4 * std::pow(3.0, 128.0 / 126.0), 1e-6);
}

TEST(Rope, AtOrBelowTheOriginalLengthDynamicIsBitIdenticalToNoScaling) {
  for (const RopeType type : {RopeType::kDynamic, RopeType::kDynamicYarn}) {
    for (const double factor : {1.0, 1.7, 8.0}) {
      for (const int64_t l0 : {1, 7, 512, 4096, 131072}) {
        auto rope = model(type, factor, l0, 1234.5);
        rope.attention_factor = 1.5;
        const auto plain = rope_frequencies(model(RopeType::kDefault, 1.0, l0, 1234.5), 1);
        EXPECT_EQ(rope_frequencies(rope, 1), plain);
        EXPECT_EQ(rope_frequencies(rope, static_cast<double>(l0)), plain);
        EXPECT_NE(rope_frequencies(rope, static_cast<double>(l0) * 1.5), plain);
      }
    }
  }
}

// A sequence that grows by one token past L0 must not jump.
TEST(Rope, DynamicScalesAreContinuousAtTheOriginalLength) {
  for (const RopeType type : {RopeType::kDynamic, RopeType::kDynamicYarn}) {
    const auto rope = model(type, 4.0);
    const auto at = rope_frequencies(rope, 4096), after = rope_frequencies(rope, 4096 * (1.0 + 1e-9));
    for (size_t i = 0; i < at.inv_freq.size(); ++i)
      EXPECT_NEAR(after.inv_freq[i] / at.inv_freq[i], 1.0, 1e-8);
    EXPECT_NEAR(after.attention_factor, at.attention_factor, 1e-8);
  }
}

// Pairs that turn more than 32 times in L0 are kept, those below one turn divided by s. The bounds are
// rounded outwards, so the pairs between them lie inside the ramp.
TEST(Rope, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  const auto rope = model(RopeType::kYarn, 16.0);
  const auto plain = rope_unscaled(rope).inv_freq;
  const auto got = rope_frequencies(rope, 1);
  // d ln(4096 / (32 2 pi)) / (2 ln 1e4) = 20.95 -> 20; d ln(4096 / 2 pi) / (2 ln 1e4) = 45.03 -> 46.
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - 20.0) / 26.0, 0.0, 1.0);
    EXPECT_NEAR(got.inv_freq[i] / plain[i], 1.0 - ramp + ramp / 16.0, 1e-14) << i;
    if (turns(plain[i], 4096) > 33.0) {
      EXPECT_EQ(got.inv_freq[i], plain[i]) << i;
    }
    if (turns(plain[i], 4096) < 0.8) {
      EXPECT_EQ(got.inv_freq[i], plain[i] / 16.0) << i;
    }
  }
  EXPECT_DOUBLE_EQ(got.attention_factor, 0.1 * std::log(16.0) + 1.0);
}

TEST(Rope, YarnWithoutTruncationRampsBetweenRealBounds) {
  auto rope = model(RopeType::kYarn, 32.0, 4096, 150000.0, 64);
  rope.truncate = false;
  const auto plain = rope_unscaled(rope).inv_freq, got = rope_frequencies(rope, 1).inv_freq;
  const auto bound = [](double n) {
    return 64.0 * std::log(4096.0 / (n * 2.0 * std::numbers::pi)) / (2.0 * std::log(150000.0));
  };
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - bound(32)) / (bound(1) - bound(32)), 0.0, 1.0);
    EXPECT_NEAR(got[i] / plain[i], 1.0 - ramp + ramp / 32.0, 1e-14) << i;
  }
}

TEST(Rope, YarnWithEqualBoundsIsAStep) {
  auto rope = model(RopeType::kYarn, 4.0, 4096, 1e4, 128);
  rope.beta_fast = rope.beta_slow = 1.0;
  rope.truncate = false;
  const auto plain = rope_unscaled(rope).inv_freq, got = rope_frequencies(rope, 1).inv_freq;
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_EQ(got[i], i <= 45 ? plain[i] : plain[i] / 4.0) << i;  // the bound is 45.03
}

TEST(Rope, YarnAttentionFactorPrecedence) {
  auto rope = model(RopeType::kYarn, 40.0);
  const double m = 0.1 * std::log(40.0) + 1.0;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope, 1).attention_factor, m);
  rope.mscale = 0.707;  // alone it does nothing
  EXPECT_DOUBLE_EQ(rope_frequencies(rope, 1).attention_factor, m);
  rope.mscale_all_dim = 0.707;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope, 1).attention_factor, 1.0);
  rope.mscale = 1.0;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope, 1).attention_factor, m / (0.0707 * std::log(40.0) + 1.0));
  rope.attention_factor = 1.25;
  EXPECT_EQ(rope_frequencies(rope, 1).attention_factor, 1.25);
}

TEST(Rope, DynamicYarnIsYarnAtTheLengthsScale) {
  const auto rope = model(RopeType::kDynamicYarn);
  EXPECT_EQ(rope_frequencies(rope, 16384), rope_frequencies(model(RopeType::kYarn, 4.0), 1));
  EXPECT_EQ(rope_frequencies(rope, 4096 * 5.5), rope_frequencies(model(RopeType::kYarn, 5.5), 1));
  const auto capped = model(RopeType::kDynamicYarn, 2.0);
  EXPECT_EQ(rope_frequencies(capped, 6144), rope_frequencies(model(RopeType::kYarn, 1.5), 1));
  EXPECT_EQ(rope_frequencies(capped, 65536), rope_frequencies(model(RopeType::kYarn, 2.0), 1));
}

// NTK-by-parts as the YaRN paper writes it (section 3.2): ramp in r = L0 / wavelength between alpha and beta.
TEST(Rope, Llama3IsNtkByPartsWithAlpha1AndBeta4) {
  const auto rope = model(RopeType::kLlama3, 8.0, 8192, 5e5);
  const auto plain = rope_unscaled(rope).inv_freq;
  const auto got = rope_frequencies(rope, 1);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double gamma = std::clamp((turns(plain[i], 8192) - 1.0) / (4.0 - 1.0), 0.0, 1.0);
    EXPECT_NEAR(got.inv_freq[i], (1.0 - gamma) * plain[i] / 8.0 + gamma * plain[i], 1e-15 * plain[i]) << i;
  }
  EXPECT_EQ(got.attention_factor, 1.0);
  // The values Llama 3.1's reference code prints for its first stretched and last pair.
  EXPECT_EQ(got.inv_freq[28], plain[28]);
  EXPECT_LT(got.inv_freq[29], plain[29]);
  EXPECT_DOUBLE_EQ(got.inv_freq[63], plain[63] / 8.0);
}

TEST(Rope, LongRopeSwitchesPastTheOriginalLength) {
  auto rope = model(RopeType::kLongRope, 32.0, 4096, 1e4, 8);
  rope.short_factor = {1.0, 1.1, 1.2, 1.3};
  rope.long_factor = {1.0, 2.0, 10.0, 50.0};
  const auto plain = rope_unscaled(rope).inv_freq;
  const auto brief = rope_frequencies(rope, 4096), extended = rope_frequencies(rope, 4097);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(brief.inv_freq[i], plain[i] / rope.short_factor[i]);
    EXPECT_EQ(extended.inv_freq[i], plain[i] / rope.long_factor[i]);
  }
  EXPECT_DOUBLE_EQ(brief.attention_factor, std::sqrt(1.0 + std::log(32.0) / std::log(4096.0)));
  EXPECT_EQ(brief.attention_factor, extended.attention_factor);
  rope.attention_factor = 1.5;
  EXPECT_EQ(rope_frequencies(rope, 1).attention_factor, 1.5);
}

TEST(Rope, ProportionalLeavesTheRestOfTheHeadUnrotated) {
  auto rope = model(RopeType::kProportional, 1.0, 4096, 1e6, 16);
  rope.partial_rotary_factor = 0.3;  // int(0.3 * 16 // 2) = 2 pairs
  const auto got = rope_frequencies(rope, 1).inv_freq;
  ASSERT_EQ(got.size(), 8U);
  EXPECT_EQ(got[0], 1.0);
  EXPECT_DOUBLE_EQ(got[1], std::pow(1e6, -2.0 / 16.0));
  for (size_t i = 2; i < 8; ++i) EXPECT_EQ(got[i], 0.0);
  rope.factor = 2.0;
  EXPECT_EQ(rope_frequencies(rope, 1).inv_freq[0], 0.5);
}

// A factor of 1 is no scaling, whatever the type.
TEST(Rope, FactorOneChangesNothing) {
  for (const RopeType type : {RopeType::kLinear, RopeType::kNtk, RopeType::kYarn, RopeType::kLlama3}) {
    const auto rope = model(type);
    const auto plain = rope_unscaled(rope), got = rope_frequencies(rope, 1e6);
    EXPECT_EQ(got.attention_factor, 1.0);
    for (size_t i = 0; i < plain.inv_freq.size(); ++i)
      EXPECT_NEAR(got.inv_freq[i] / plain.inv_freq[i], 1.0, 1e-15);
  }
}

TEST(Rope, OnlyThreeTypesLookAtTheLength) {
  for (const char* name : {"default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", "llama3",
                           "longrope", "proportional"}) {
    auto rope = model(*find_rope_type(name), 2.0);
    rope.short_factor.assign(64, 1.0);
    rope.long_factor.assign(64, 2.0);
    EXPECT_EQ(rope.depends_on_length(), rope_frequencies(rope, 4096) != rope_frequencies(rope, 8192)) << name;
  }
}

TEST(RopeStep, IsTheLengthItselfWhereNothingIsRounded) {
  const auto rope = model(RopeType::kDynamic, 2.0);
  EXPECT_EQ(rope_step_length(rope, 1, 4), 1.0);
  EXPECT_EQ(rope_step_length(rope, 4096, 4), 4096.0);
  EXPECT_EQ(rope_step_length(rope, 5000, 0), 5000.0);
  for (const RopeType type : {RopeType::kDefault, RopeType::kYarn, RopeType::kLongRope, RopeType::kLlama3})
    EXPECT_EQ(rope_step_length(model(type, 2.0), 5000, 4), 5000.0);
}

TEST(RopeStep, RoundsUpToTheNextStep) {
  const auto rope = model(RopeType::kDynamicYarn);
  EXPECT_EQ(rope_step_length(rope, 4097, 1), 8192.0);
  EXPECT_EQ(rope_step_length(rope, 8193, 1), 16384.0);
  EXPECT_DOUBLE_EQ(rope_step_length(rope, 4097, 4), 4096.0 * std::pow(2.0, 0.25));
  EXPECT_DOUBLE_EQ(rope_step_length(rope, 5793, 4), 4096.0 * std::pow(2.0, 0.75));  // 4096 sqrt 2 = 5792.6
  EXPECT_DOUBLE_EQ(rope_step_length(rope, 5792, 4), 4096.0 * std::sqrt(2.0));
}

TEST(RopeStep, ALengthOnAStepStaysOnIt) {
  for (const int64_t l0 : {1, 3, 10, 511, 512, 2048, 4095, 4096, 131072, 1000003}) {
    const auto rope = model(RopeType::kDynamic, 1.0, l0);
    for (int r = 1; r <= 64; ++r) {
      for (int octave = 0; octave <= 12; ++octave) {
        const int64_t length = l0 << octave;
        EXPECT_EQ(rope_step_length(rope, length, r), static_cast<double>(length)) << l0 << " " << r;
      }
    }
  }
}

TEST(RopeStep, IsTheSmallestStepThatHoldsTheLength) {
  for (const int64_t l0 : {5, 512, 3000}) {
    const auto rope = model(RopeType::kDynamic, 1.0, l0);
    for (const int r : {1, 3, 4, 8, 64}) {
      double last = static_cast<double>(l0);
      for (int64_t n = l0 + 1; n < 20 * l0; ++n) {
        const double step = rope_step_length(rope, n, r);
        ASSERT_GE(step, static_cast<double>(n));
        ASSERT_LT(step * std::exp2(-1.0 / r) * (1 - 1e-12), static_cast<double>(n));
        ASSERT_GE(step, last);
        last = step;
      }
    }
  }
}

TEST(RopeProblem, NamesTheKeyToBlame) {
  EXPECT_FALSE(find_rope_problem(model(RopeType::kYarn, 4.0)));
  const auto key = [](const RopeScaling& rope) {
    const auto problem = find_rope_problem(rope);
    return problem ? problem->key : "none";
  };
  const double nan = std::nan("");
  EXPECT_EQ(key(model(RopeType::kLinear, 0.5)), "factor");
  EXPECT_EQ(key(model(RopeType::kLinear, nan)), "factor");
  EXPECT_EQ(key(model(RopeType::kLinear, INFINITY)), "factor");
  EXPECT_EQ(key(model(RopeType::kLinear, 2.0, 0)), "original_max_position_embeddings");
  EXPECT_EQ(key(model(RopeType::kLinear, 2.0, 4096, 1.0)), "rope_theta");
  EXPECT_EQ(key(model(RopeType::kLinear, 2.0, 4096, nan)), "rope_theta");
  EXPECT_EQ(key(model(RopeType::kLinear, 2.0, 4096, 1e4, 7)), "partial_rotary_factor");
  EXPECT_EQ(key(model(RopeType::kNtk, 2.0, 4096, 1e4, 2)), "rope_type");
  EXPECT_EQ(key(model(RopeType::kLongRope, 2.0)), "short_factor");
  auto rope = model(RopeType::kLlama3, 8.0);
  rope.high_freq_factor = 1.0;
  EXPECT_EQ(key(rope), "high_freq_factor");
  rope.low_freq_factor = 0.0;
  EXPECT_EQ(key(rope), "low_freq_factor");
  rope = model(RopeType::kYarn, 2.0);
  rope.max_position_embeddings = 4095;  // as people who save memory write it
  EXPECT_EQ(key(rope), "none");
  rope.factor = 0.5;
  EXPECT_EQ(key(rope), "none");
}

}  // namespace
}  // namespace lariat
