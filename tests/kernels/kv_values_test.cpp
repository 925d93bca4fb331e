#include "kernels/kv_values.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();

std::vector<float> round_trip(const std::vector<float>& x) {
  std::vector<int8_t> integers(x.size());
  const float scale = quantize_value(x.data(), static_cast<int64_t>(x.size()), integers.data());
  std::vector<float> result;
  for (const int8_t i : integers) result.push_back(scale * static_cast<float>(i));
  return result;
}

TEST(KvValues, AreAtMostHalfAStepAway) {
  Rng rng(3);
  for (const float size : {1e-30F, 1e-6F, 1.0F, 1e30F}) {
    for (const int64_t n : {1, 7, 64, 255}) {
      const std::vector<float> x = rng.normals(n, size), y = round_trip(x);
      const double step = largest_magnitude(x) / 127;
      for (size_t d = 0; d < x.size(); ++d) EXPECT_LE(std::abs(double{x[d]} - y[d]), 0.50001 * step) << n;
      EXPECT_NEAR(largest_magnitude(y) / largest_magnitude(x), 1, 1e-6);
    }
  }
}

TEST(KvValues, RoundToTheNearestAndTiesToEven) {
  EXPECT_EQ(round_trip({127.0F, 0.5F, 1.5F, -2.5F, 2.51F, -127.0F, 0.0F}),
            (std::vector<float>{127, 0, 2, -2, 3, -127, 0}));
}

TEST(KvValues, OnlyNaNGivesNaN) {
  EXPECT_EQ(round_trip({0.0F, -0.0F, 1e-38F}), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(round_trip({kInf, -kInf, 1.0F}),
            (std::vector<float>{127 * (kMost / 127), -127 * (kMost / 127), 0}));
  for (const float value : round_trip({1.0F, std::nanf(""), 2.0F})) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace lariat::test
