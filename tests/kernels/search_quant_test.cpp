#include "kernels/search_quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/convert.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

struct Searched {
  std::vector<uint8_t> codes;
  std::vector<float> scale, offset, d, dm;
  int64_t block;

  double value(size_t i) const {
    const size_t g = i / kSearchGroup, b = i / static_cast<size_t>(block);
    return static_cast<double>(d[b]) * scale[g] * codes[i] + static_cast<double>(dm[b]) * offset[g];
  }
};

// Garbage in outputs reveals unwritten values.
Searched searched(const std::vector<float>& w, int largest = 15, int64_t block = 0) {
  const auto cols = static_cast<int64_t>(w.size());
  if (block == 0) block = search_block(cols);
  const auto groups = static_cast<size_t>((cols + kSearchGroup - 1) / kSearchGroup);
  const auto blocks = static_cast<size_t>((cols + block - 1) / block);
  Searched s{std::vector<uint8_t>(groups * kSearchGroup, 99),
             std::vector<float>(groups, 1e9F),
             std::vector<float>(groups, 1e9F),
             std::vector<float>(blocks, 1e9F),
             std::vector<float>(blocks, 1e9F),
             block};
  search_row(w.data(), cols, block, largest,
             {s.codes.data(), s.scale.data(), s.offset.data(), s.d.data(), s.dm.data()});
  return s;
}

double squared_error(const std::vector<float>& w, const Searched& s) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += std::pow(s.value(i) - w[i], 2);
  return sum;
}

// Values from a group's smallest to largest weight, 32-bit scale and minimum.
double plain_error(const std::vector<float>& w, int largest) {
  double sum = 0;
  for (size_t first = 0; first < w.size(); first += kSearchGroup) {
    const size_t last = std::min(w.size(), first + kSearchGroup);
    const auto [low, high] =
        std::minmax_element(w.begin() + static_cast<long>(first), w.begin() + static_cast<long>(last));
    const double minimum = *low, step = (static_cast<double>(*high) - minimum) / largest;
    for (size_t i = first; i < last && step > 0; ++i) {
      sum += std::pow(std::nearbyint((w[i] - minimum) / step) * step + minimum - w[i], 2);
    }
  }
  return sum;
}

std::vector<float> heavy_tailed(int64_t cols, uint64_t seed) {
  std::vector<float> w = Rng(seed).normals(cols, 0.05F);
  for (float& value : w) value *= std::abs(value) * 20;
  return w;
}

void expect_in_range(const Searched& s, int largest) {
  for (const uint8_t code : s.codes) EXPECT_LE(code, largest);
  for (const float scale : s.scale)
    EXPECT_TRUE(scale >= 0 && scale <= 127 && scale == std::floor(scale)) << scale;
  for (const float m : s.offset) EXPECT_TRUE(std::abs(m) <= 127 && m == std::floor(m)) << m;
  for (const auto* outer : {&s.d, &s.dm}) {
    for (const float f : *outer) EXPECT_TRUE(f >= 0 && f == round_to_f16(f)) << f;
  }
}

TEST(SearchRow, BeatsMinimumToMaximum) {
  for (const int64_t cols : {576, 1536, 4864}) {
    for (const auto& [w, part] :
         {std::pair{Rng(3).normals(cols, 0.02F), 0.92}, {heavy_tailed(cols, 4), 0.9}}) {
      const Searched s = searched(w);
      expect_in_range(s, 15);
      EXPECT_LT(squared_error(w, s), part * plain_error(w, 15)) << cols;
    }
  }
}

TEST(SearchRow, EightBitsLoseTheRoundingOfTheMinimum) {
  const std::vector<float> w = Rng(3).normals(640, 0.02F);
  const Searched s = searched(w, 255);
  expect_in_range(s, 255);
  EXPECT_LT(squared_error(w, s), 1.1 * plain_error(w, 255));
}

// One sign, far from zero, any magnitude of f16 scales.
TEST(SearchRow, FollowsWeightsOfAnyOffsetAndMagnitude) {
  for (const float scale : {1e-3F, 1.0F, 1e5F}) {
    for (const float offset : {-3.0F, 2.0F}) {
      std::vector<float> w = Rng(8).normals(256);
      for (float& value : w) value = (value + offset) * scale;
      EXPECT_LT(squared_error(w, searched(w)), plain_error(w, 15)) << scale << ' ' << offset;
    }
  }
}

TEST(SearchRow, RecoversWeightsOnAGrid) {
  std::vector<float> w(512);
  Rng rng(6);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = 0.25F * static_cast<float>(i % 32 < 16 ? i % 16 : rng.next() % 16) - 2;
  EXPECT_LT(squared_error(w, searched(w)), 1e-3 * static_cast<double>(w.size()) * 0.25 * 0.25);
}

TEST(SearchRow, GroupsOfEqualWeights) {
  const Searched zeros = searched(std::vector<float>(100, 0.0F));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(zeros.value(i), 0);
  const Searched equal = searched(std::vector<float>(100, -0.7F));
  for (size_t i = 0; i < 100; ++i) EXPECT_NEAR(equal.value(i), -0.7, 0.7 / 1000);
  std::vector<float> mixed = Rng(9).normals(96, 0.1F);
  std::fill(mixed.begin() + 32, mixed.begin() + 64, 0.0F);
  const Searched s = searched(mixed);
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(s.value(i), 0);
}

// A row equals the prefix of a longer row; absent inputs are 0.
TEST(SearchRow, OddSizes) {
  const std::vector<float> all = heavy_tailed(700, 12);
  for (const int64_t cols : {1, 2, 31, 33, 63, 65, 129, 700}) {
    const std::vector<float> w(all.begin(), all.begin() + cols);
    const Searched s = searched(w);
    expect_in_range(s, 15);
    for (size_t i = w.size(); i < s.codes.size(); ++i) EXPECT_EQ(s.codes[i], 0) << cols;
    EXPECT_LT(squared_error(w, s), plain_error(w, 15) + 1e-6) << cols;
  }
  const std::vector<float> two(all.begin(), all.begin() + 128);
  const Searched a = searched(all, 15, 64), b = searched(two, 15, 64);
  EXPECT_TRUE(std::equal(b.codes.begin(), b.codes.end(), a.codes.begin()));
  EXPECT_TRUE(std::equal(b.d.begin(), b.d.end(), a.d.begin()));
}

TEST(SearchRow, NaNStaysInItsBlock) {
  for (const float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN(), 3e38F, -1e9F, 1e7F}) {
    std::vector<float> w = Rng(2).normals(256);
    w[70] = bad;
    const Searched s = searched(w, 15, 128);
    EXPECT_TRUE(std::isnan(s.d[0]) && std::isnan(s.dm[0])) << bad;
    EXPECT_TRUE(std::isfinite(s.d[1]) && std::isfinite(s.dm[1])) << bad;
    for (size_t i = 0; i < 128; ++i) EXPECT_TRUE(std::isnan(s.value(i))) << bad;
  }
}

TEST(SearchRow, IsDeterministic) {
  const std::vector<float> w = heavy_tailed(1000, 5);
  const Searched a = searched(w), b = searched(w);
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.offset, b.offset);
  EXPECT_EQ(a.d, b.d);
  EXPECT_EQ(a.dm, b.dm);
}

TEST(SearchBlock, CoversRowsWithFewAbsentInputs) {
  for (const auto& [cols, block] : {std::pair<int64_t, int64_t>{1, 64},
                                    {64, 64},
                                    {576, 576},
                                    {1536, 1536},
                                    {2048, 2048},
                                    {2112, 704},
                                    {4096, 2048},
                                    {4864, 1216},
                                    {14336, 2048}}) {
    EXPECT_EQ(search_block(cols), block) << cols;
  }
  for (int64_t cols = 1; cols < 20000; ++cols) {
    const int64_t block = search_block(cols), padded = (cols + block - 1) / block * block;
    ASSERT_TRUE(block % 64 == 0 && block <= kSearchBlock) << cols;
    ASSERT_LT(padded - cols, std::max<int64_t>(64, cols / 16)) << cols;
  }
}

}  // namespace
}  // namespace lariat::test
