// rope_golden_test.cpp compares the formulas with transformers.
#include "models/spec/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

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

TEST(Rope, TypesHaveNamesAndSomeFollowTheLength) {
  for (const char* name : {"default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", "llama3",
                           "longrope", "proportional", "yarn-radix", "dynamic-yarn-radix"}) {
    auto rope = model(*find_rope_type(name), 2.0);
    EXPECT_EQ(name_of(rope.type), name);
    rope.short_factor.assign(64, 1.0);
    rope.long_factor.assign(64, 2.0);
    EXPECT_EQ(rope.depends_on_length(), rope_frequencies(rope, 4096) != rope_frequencies(rope, 8192)) << name;
  }
  EXPECT_FALSE(find_rope_type("YaRN")) << "type names are case-sensitive as in transformers";
  EXPECT_FALSE(find_rope_type("none"));
}

// Empty key: no problem.
TEST(Rope, ProblemsNameTheirKey) {
  const auto with = [](RopeType type, double factor, auto RopeScaling::*member, auto value) {
    RopeScaling rope = model(type, factor);
    rope.short_factor.assign(64, 1.0);
    rope.long_factor.assign(64, 2.0);
    rope.*member = value;
    return rope;
  };
  RopeScaling odd = with(RopeType::kNtk, 2, &RopeScaling::rotary_dim, 4);
  odd.odd = true;  // 3 dimensions
  const std::pair<RopeScaling, const char*> rows[] = {
      {model(RopeType::kLinear, std::nan("")), "factor"},
      {model(RopeType::kLinear, 0.99), "factor"},
      {model(RopeType::kYarn, 1e-6), ""},
      {model(RopeType::kYarn, 0.9e-6), "factor"},
      {model(RopeType::kLinear, 1e6), ""},
      {model(RopeType::kLinear, 1.1e6), "factor"},
      {model(RopeType::kLinear, 2, 4096, std::nan("")), "rope_theta"},
      {model(RopeType::kLinear, 2, 4096, 1.5), ""},
      {model(RopeType::kLinear, 2, 4096, 1e15), ""},
      {model(RopeType::kLinear, 2, 4096, 1.1e15), "rope_theta"},
      {model(RopeType::kLinear, 2, 4096, 1e4, 7), "partial_rotary_factor"},
      {with(RopeType::kLinear, 2, &RopeScaling::head_dim, 126), "partial_rotary_factor"},
      {model(RopeType::kLinear, 2, 0), "original_max_position_embeddings"},
      {model(RopeType::kLinear, 2, 1), ""},
      {model(RopeType::kLinear, 2, 4096, 1e4, 2), ""},
      {model(RopeType::kNtk, 2, 4096, 1e4, 2), "rope_type"},
      {model(RopeType::kDynamic, 2, 4096, 1e4, 2), "rope_type"},
      {odd, ""},
      {with(RopeType::kLinear, 2, &RopeScaling::odd, true), ""},
      {with(RopeType::kYarn, 2, &RopeScaling::odd, true), "partial_rotary_factor"},
      {with(RopeType::kDynamicYarn, 2, &RopeScaling::odd, true), "partial_rotary_factor"},
      {with(RopeType::kDynamicYarnRadix, 2, &RopeScaling::odd, true), "partial_rotary_factor"},
      {model(RopeType::kYarnRadix, 0.99), "factor"},
      {with(RopeType::kProportional, 2, &RopeScaling::partial_rotary_factor, 2.0 / 128), ""},
      {with(RopeType::kProportional, 2, &RopeScaling::partial_rotary_factor, 1.9 / 128),
       "partial_rotary_factor"},
      {with(RopeType::kLinear, 2, &RopeScaling::partial_rotary_factor, 0.001), ""},
      {with(RopeType::kLongRope, 0.5, &RopeScaling::original_ctx, 2), ""},
      {with(RopeType::kLongRope, 2, &RopeScaling::original_ctx, 1), "original_max_position_embeddings"},
  };
  for (const auto& [rope, key] : rows) {
    const auto problem = find_rope_problem(rope);
    EXPECT_EQ(problem ? problem->key : "", key)
        << name_of(rope.type) << " " << rope.factor << " " << rope.theta;
  }
}

TEST(Rope, ScalesFollowTheLength) {
  EXPECT_EQ(rope_scale(model(RopeType::kDefault, 4), 8192), 1.0);
  EXPECT_EQ(rope_scale(model(RopeType::kLongRope, 4), 4096), 1.0);
  EXPECT_EQ(rope_scale(model(RopeType::kLongRope, 4), 4097), 4.0);
  auto yarn = model(RopeType::kYarn, std::exp(1.0));
  EXPECT_EQ(rope_score_scale(yarn), 1.0);
  yarn.mscale_all_dim = 5;
  EXPECT_DOUBLE_EQ(rope_score_scale(yarn), 1.5 * 1.5);
  yarn.type = RopeType::kDynamicYarn;
  EXPECT_EQ(rope_score_scale(yarn), 1.0);
}

// Published files have a low_freq_factor of 1.
TEST(Rope, Llama3DividesFrequenciesOfLongWavelengths) {
  auto rope = model(RopeType::kLlama3, 8);
  rope.low_freq_factor = 2;
  const auto before = rope_unscaled(rope).inv_freq, after = rope_frequencies(rope, 1).inv_freq;
  for (size_t i = 0; i < before.size(); ++i) {
    const double turns = 4096 * before[i] / (2 * std::acos(-1.0)), ratio = before[i] / after[i];
    if (turns < 2 || turns > 4) {
      EXPECT_DOUBLE_EQ(ratio, turns < 2 ? 8 : 1) << i;
    } else {
      EXPECT_TRUE(ratio > 1 && ratio < 8) << i;
    }
  }
}

TEST(Rope, LongRopesAttentionFactorUsesFactorsAboveOne) {
  auto rope = model(RopeType::kLongRope, 0.5);
  rope.short_factor = rope.long_factor = std::vector(64, 2.0);
  EXPECT_EQ(rope_frequencies(rope, 1).attention_factor, 1.0);
  rope.factor = 1.5;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope, 1).attention_factor, std::sqrt(1 + std::log(1.5) / std::log(4096)));
}

TEST(Rope, ProportionalRotatesWholePairsOfItsShare) {
  auto rope = model(RopeType::kProportional, 1, 4096, 1e4, 80);
  rope.partial_rotary_factor = 0.33;  // 13.2 pairs
  const RopeFrequencies unscaled = rope_unscaled(rope);
  EXPECT_EQ(std::ranges::count(unscaled.inv_freq, 0.0), 40 - 13);
  EXPECT_EQ(unscaled.attention_factor, 1.0);
}

TEST(Rope, AtOrBelowTheOriginalLengthDynamicIsBitIdenticalToNoScaling) {
  for (const RopeType type : {RopeType::kDynamic, RopeType::kDynamicYarn, RopeType::kDynamicYarnRadix}) {
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

// A sequence that grows past L0 must not jump.
TEST(Rope, DynamicScalesAreContinuousAtTheOriginalLength) {
  for (const RopeType type : {RopeType::kDynamic, RopeType::kDynamicYarn, RopeType::kDynamicYarnRadix}) {
    const auto rope = model(type, 4.0);
    const auto at = rope_frequencies(rope, 4096), after = rope_frequencies(rope, 4096 * (1.0 + 1e-9));
    for (size_t i = 0; i < at.inv_freq.size(); ++i)
      EXPECT_NEAR(after.inv_freq[i] / at.inv_freq[i], 1.0, 1e-8);
    EXPECT_NEAR(after.attention_factor, at.attention_factor, 1e-8);
  }
}

TEST(Rope, DynamicYarnIsBoundedByItsFactor) {
  const auto capped = model(RopeType::kDynamicYarn, 2.0);
  EXPECT_EQ(rope_frequencies(capped, 6144), rope_frequencies(model(RopeType::kYarn, 1.5), 1));
  EXPECT_EQ(rope_frequencies(capped, 65536), rope_frequencies(model(RopeType::kYarn, 2.0), 1));
  EXPECT_EQ(rope_frequencies(model(RopeType::kDynamicYarnRadix, 2.0), 65536),
            rope_frequencies(model(RopeType::kYarnRadix, 2.0), 1));
}

// f / f' of Llama 2 at a scale of 16 in the authors' code, in float32, here to three digits.
TEST(Rope, YarnRadixDividesByPowersOfTheScale) {
  const auto rope = model(RopeType::kYarnRadix, 16);
  const auto before = rope_unscaled(rope).inv_freq, after = rope_frequencies(rope, 1).inv_freq;
  for (const auto& [pair, ratio] : {std::pair<size_t, double>(20, 1),
                                    {25, 1.13},
                                    {30, 1.54},
                                    {36, 2.93},
                                    {40, 5.25},
                                    {44, 10.7},
                                    {46, 16}})
    EXPECT_NEAR(before[pair] / after[pair], ratio, 0.005 * ratio) << pair;
}

TEST(RopeStep, IsTheExactLengthWithoutRounding) {
  const auto rope = model(RopeType::kDynamic, 2.0);
  EXPECT_EQ(rope_step_length(rope, 1000, 4), 1000.0);
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

TEST(RopeStep, AModelsOwnStepsTakePrecedence) {
  auto rope = model(RopeType::kDynamic);
  rope.own_steps = 1;
  EXPECT_EQ(rope_step_length(rope, 4097, 4), 8192.0);
  EXPECT_EQ(rope_step_length(rope, 4097, 0), 8192.0);
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
      for (int64_t n = l0 + 1; n < 20 * l0; ++n) {
        const double step = rope_step_length(rope, n, r);
        ASSERT_GE(step, static_cast<double>(n));
        ASSERT_LT(step * std::exp2(-1.0 / r) * (1 - 1e-12), static_cast<double>(n));
        ASSERT_NEAR(std::remainder(r * std::log2(step / static_cast<double>(l0)), 1.0), 0, 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace lariat
