#pragma once
#include <ostream>

#include "tests/kernels/tensors.h"

// Cases of Backend::sample.
namespace lariat::test {

enum class LogitFill { kNormal, kCoarse, kEqual, kHoles, kOneFinite, kHuge };

struct SampleCase {
  int64_t cols;
  Sampling how;
  LogitFill fill = LogitFill::kNormal;
  int64_t draws = 9, gap = 0;
};

inline void PrintTo(const SampleCase& c, std::ostream* out) {
  *out << c.cols << " logits, fill " << static_cast<int>(c.fill) << ", temperature " << c.how.temperature
       << ", top-k " << c.how.top_k << ", top-p " << c.how.top_p << ", min-p " << c.how.min_p;
}

inline std::vector<SampleCase> sample_cases() {
  std::vector<SampleCase> cases;
  const Sampling plain{1.0F, 0, 1.0F, 0.0F}, all_cuts{0.8F, 20, 0.9F, 0.02F};
  for (int64_t cols : {1, 2, 3, 31, 33, 1000, 1025}) {
    cases.push_back({cols, plain});
    cases.push_back({cols, all_cuts, LogitFill::kNormal, 9, 3});
  }
  for (LogitFill fill :
       {LogitFill::kCoarse, LogitFill::kEqual, LogitFill::kHoles, LogitFill::kOneFinite, LogitFill::kHuge}) {
    for (const Sampling& how :
         {plain, all_cuts, Sampling{1.0F, 7, 1.0F, 0.0F}, Sampling{1.5F, 0, 0.37F, 0.0F},
          Sampling{0.5F, 0, 1.0F, 0.11F}, Sampling{0.0F, 3, 0.5F, 0.5F}}) {
      cases.push_back({257, how, fill});
    }
  }
  for (float temperature : {1e-39F, 1e-3F, 0.1F, 10.0F, 1000.0F}) {
    cases.push_back({515, {temperature, 0, 0.95F, 0.0F}, LogitFill::kCoarse});
  }
  cases.push_back({32003, all_cuts, LogitFill::kNormal, 3});
  cases.push_back({32003, plain, LogitFill::kNormal, 2});
  return cases;
}

inline std::vector<float> sample_logits(const SampleCase& c) {
  Rng rng(18);
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> logits = rng.normals(c.cols, 4.0F);
  for (size_t i = 0; i < logits.size(); ++i) {
    float& x = logits[i];
    if (c.fill == LogitFill::kCoarse) x = std::round(x);
    if (c.fill == LogitFill::kEqual) x = -2.5F;
    if (c.fill == LogitFill::kHoles && i % 3 != 1) x = i % 3 == 0 ? -inf : std::nanf("");
    if (c.fill == LogitFill::kOneFinite && i != logits.size() / 2) x = -inf;
    if (c.fill == LogitFill::kHuge) x = x > 0 ? 3e38F : i % 2 == 0 ? -3e38F : -0.0F;
  }
  return logits;
}

// One draw per uniform number, each from a row of the same logits.
inline std::vector<int32_t> samples_of(Backend& backend, const std::vector<float>& row, const Sampling& how,
                                       const std::vector<double>& uniforms, int64_t gap = 0) {
  std::vector<float> rows;
  for (size_t i = 0; i < uniforms.size(); ++i) rows.insert(rows.end(), row.begin(), row.end());
  const Tensor logits(backend, rows, static_cast<int64_t>(uniforms.size()), static_cast<int64_t>(row.size()),
                      DType::kF32, gap);
  std::vector<int32_t> ids(uniforms.size(), -7);
  backend.sample(logits.view(), how, uniforms, ids);
  return ids;
}

// The reference's token, or, for a uniform number within 1e-9 of the border between two, its neighbour.
inline void expect_same_draws(Backend& tested, Backend& reference, const std::vector<float>& row,
                              const Sampling& how, const std::vector<double>& uniforms, int64_t gap = 0) {
  const std::vector<int32_t> actual = samples_of(tested, row, how, uniforms, gap);
  const std::vector<int32_t> expected = samples_of(reference, row, how, uniforms);
  for (size_t i = 0; i < uniforms.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const double below = std::max(0.0, uniforms[i] - 1e-9), above = std::min(1 - 0x1p-53, uniforms[i] + 1e-9);
    const std::vector<int32_t> around = samples_of(reference, row, how, {below, above});
    EXPECT_TRUE(actual[i] == around[0] || actual[i] == around[1])
        << "u = " << uniforms[i] << ": " << actual[i] << ", expected " << expected[i];
  }
}

inline void check_sample(Backend& tested, Backend& reference, const SampleCase& c) {
  Rng rng(19);
  std::vector<double> uniforms = {1 - 0x1p-53, 0.0};
  while (static_cast<int64_t>(uniforms.size()) < c.draws) uniforms.push_back(rng.uniform());
  expect_same_draws(tested, reference, sample_logits(c), c.how, uniforms, c.gap);
}

// Evenly spaced numbers instead of random ones: each token comes up as often as its probability says, to
// within one draw.
inline void check_sample_distribution(Backend& backend) {
  constexpr int kDraws = 200;
  const std::vector<double> p = {0.05, 0.3, 0.0, 0.25, 0.4};
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));  // log(0) is -inf
  std::vector<double> uniforms;
  for (int i = 0; i < kDraws; ++i) uniforms.push_back((i + 0.5) / kDraws);
  std::vector<int> counts(p.size());
  for (int32_t id : samples_of(backend, logits, {1.0F, 0, 1.0F, 0.0F}, uniforms)) {
    ASSERT_TRUE(id >= 0 && id < 5) << id;
    ++counts[static_cast<size_t>(id)];
  }
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(counts[i], kDraws * p[i], 1.0) << i;
}

inline void check_sample_oddities(Backend& backend) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float temperature : {0.0F, 1.0F}) {
    const Sampling how{temperature, 0, 1.0F, 0.0F};
    const auto one = [&](const std::vector<float>& row) { return samples_of(backend, row, how, {0.5})[0]; };
    EXPECT_EQ(one({nan, nan}), -1);
    EXPECT_EQ(one({-inf, -inf, nan}), -1);
    EXPECT_EQ(one({1, inf, 2}), -1);
    EXPECT_EQ(one({nan, 4, -inf}), 1);
    EXPECT_EQ(one({100, 100 + 90, nan}), 1);
  }
  const Tensor plain(backend, std::vector<float>{1, 3, 2}, 1, 3, DType::kF32, 0);
  int32_t greedy = -7;
  backend.sample(plain.view(), {0.0F, 0, 1.0F, 0.0F}, {}, {&greedy, 1});  // reads no uniform number
  EXPECT_EQ(greedy, 1);
  // -0 and 0 are equal: the first by id, whichever it is.
  EXPECT_EQ(samples_of(backend, {-0.0F, 0.0F}, {1.0F, 1, 1.0F, 0.0F}, {0.9})[0], 0);
  EXPECT_EQ(samples_of(backend, {0.0F, -0.0F}, {1.0F, 0, 0.5F, 0.0F}, {0.9})[0], 0);
  // What top-k cuts is not seen by top-p: of 0.4, 0.3 and 0.3 the first is 4/7 of the two that remain.
  const std::vector<float> three = {std::log(0.3F), std::log(0.4F), std::log(0.3F)};
  EXPECT_EQ(samples_of(backend, three, {1.0F, 2, 0.57F, 0.0F}, {0.99})[0], 1);
  EXPECT_EQ(samples_of(backend, three, {1.0F, 2, 0.58F, 0.0F}, {0.99})[0], 0);
  EXPECT_EQ(samples_of(backend, three, {1.0F, 0, 0.57F, 0.0F}, {0.99})[0], 0);
}

}  // namespace lariat::test
