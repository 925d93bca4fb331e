#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

namespace lariat {
namespace {

// All 65536 values; NaNs become quiet.
TEST(Convert, SixteenBitValuesSurviveARoundTrip) {
  for (uint32_t i = 0; i < 0x10000U; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const uint16_t f16 = f32_to_f16(f16_to_f32(bits)), bf16 = f32_to_bf16(bf16_to_f32(bits));
    EXPECT_EQ(f16, std::isnan(f16_to_f32(bits)) ? bits | 0x200 : bits);
    EXPECT_EQ(bf16, std::isnan(bf16_to_f32(bits)) ? bits | 0x40 : bits);
  }
}

// No 16-bit value is nearer; ties go to even.
template <typename Widen, typename Narrow>
void expect_nearest_even(Widen widen, Narrow narrow, uint16_t largest) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    // A value between two neighbours, often half way.
    const auto low = static_cast<uint16_t>(random() % largest);
    const double a = widen(low), b = widen(static_cast<uint16_t>(low + 1));
    const double t = i % 2 == 0 ? 0.5 : static_cast<double>(random()) * 0x1p-32;
    const auto x = static_cast<float>(a + (b - a) * t);
    const double to_a = x - a, to_b = b - x;
    const auto nearest = static_cast<uint16_t>(to_a < to_b || (to_a == to_b && low % 2 == 0) ? low : low + 1);
    ASSERT_EQ(narrow(x), nearest) << x;
    ASSERT_EQ(narrow(-x), nearest | 0x8000) << -x;
  }
}

TEST(Convert, RoundsToNearestEven) {
  expect_nearest_even(f16_to_f32, f32_to_f16, 0x7bff);
  expect_nearest_even(bf16_to_f32, f32_to_bf16, 0x7f7f);
}

TEST(Convert, OverflowBecomesInfinityAndNanStaysNan) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(round_to_f16(65519.99F), 65504.0F);
  EXPECT_EQ(round_to_f16(65520.0F), inf);
  EXPECT_EQ(round_to_f16(-1e9F), -inf);
  EXPECT_EQ(round_to_bf16(std::numeric_limits<float>::max()), inf);
  EXPECT_EQ(round_to_bf16(-inf), -inf);
  // A NaN with only low payload bits must not become infinity.
  const auto low_payload = std::bit_cast<float>(0xff800001U);
  for (float value : {nan, -nan, low_payload}) {
    EXPECT_TRUE(std::isnan(round_to_f16(value)));
    EXPECT_TRUE(std::isnan(round_to_bf16(value)));
    EXPECT_EQ(std::signbit(round_to_bf16(value)), std::signbit(value));
  }
}

TEST(Convert, MatricesKeepTheirStrides) {
  std::array<float, 6> source{1, 2, 99, 3, 4, 99};
  std::array<uint16_t, 8> target{};
  convert({source.data(), DType::kF32, 2, 2, 3}, {target.data(), DType::kF16, 2, 2, 4});
  EXPECT_EQ(target, (std::array<uint16_t, 8>{0x3c00, 0x4000, 0, 0, 0x4200, 0x4400, 0, 0}));
}

}  // namespace
}  // namespace lariat
