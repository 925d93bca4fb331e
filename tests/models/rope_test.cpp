// What no golden shows: the formulas themselves are compared with transformers in rope_golden_test.cpp.
#include "models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(Rope, TypesHaveNamesAndSomeLookAtTheLength) {
  for (const char* name : {"default", "linear", "ntk", "dynamic", "yarn", "dynamic-yarn", "llama3",
                           "longrope", "proportional"}) {
    auto rope = model(*find_rope_type(name), 2.0);
    EXPECT_EQ(name_of(rope.type), name);
    rope.short_factor.assign(64, 1.0);
    rope.long_factor.assign(64, 2.0);
    EXPECT_EQ(rope.depends_on_length(), rope_frequencies(rope, 4096) != rope_frequencies(rope, 8192)) << name;
  }
  EXPECT_FALSE(find_rope_type("YaRN")) << "files are read as transformers reads them";
  EXPECT_FALSE(find_rope_type("none"));
}

// Values that neither files nor options can hold.
TEST(Rope, ProblemsNameTheKeyToBlame) {
  const auto key = [](const RopeScaling& rope) { return find_rope_problem(rope).value().key; };
  EXPECT_EQ(key(model(RopeType::kLinear, INFINITY)), "factor");
  EXPECT_EQ(key(model(RopeType::kLinear, 2.0, 4096, std::nan(""))), "rope_theta");
  EXPECT_EQ(key(model(RopeType::kLinear, 2.0, 4096, 1e4, 7)), "partial_rotary_factor");
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

TEST(Rope, TheFactorOfDynamicYarnIsItsLimit) {
  const auto capped = model(RopeType::kDynamicYarn, 2.0);
  EXPECT_EQ(rope_frequencies(capped, 6144), rope_frequencies(model(RopeType::kYarn, 1.5), 1));
  EXPECT_EQ(rope_frequencies(capped, 65536), rope_frequencies(model(RopeType::kYarn, 2.0), 1));
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

}  // namespace
}  // namespace lariat
