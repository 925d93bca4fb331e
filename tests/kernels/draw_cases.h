#pragma once
#include <ostream>

#include "tests/kernels/tensors.h"

namespace lariat::test {

enum class LogitFill { kNormal, kCoarse, kEqual, kHoles, kOneFinite, kHuge, kNeighbours };

struct DrawCase {
  int64_t cols;
  Sampling how;
  LogitFill fill = LogitFill::kNormal;
  int64_t rows = 9, gap = 0;

  // With four or more sampled rows, every third row is greedy and every third differs.
  std::vector<Sampling> of_rows() const {
    std::vector<Sampling> all(static_cast<size_t>(rows), how);
    for (size_t t = 0; rows > 3 && how.temperature > 0 && t < all.size(); ++t) {
      if (t % 3 > 0) all[t] = t % 3 == 1 ? Sampling{} : Sampling{1.3F, 5, 0.8F, 0.01F};
    }
    return all;
  }
};

inline void PrintTo(const DrawCase& c, std::ostream* out) {
  *out << c.rows << " x " << c.cols << " logits, fill " << static_cast<int>(c.fill) << ", temperature "
       << c.how.temperature << ", top-k " << c.how.top_k << ", top-p " << c.how.top_p << ", min-p "
       << c.how.min_p;
}

inline std::vector<DrawCase> draw_cases() {
  std::vector<DrawCase> cases;
  const Sampling greedy{}, plain{1.0F}, all_cuts{0.8F, 20, 0.9F, 0.02F};
  cases.push_back({37, {1.0F, 0, 0.9F}, LogitFill::kNormal, 40});  // more rows than a CUDA launch holds
  for (int64_t cols : {1, 2, 3, 31, 33, 1000, 1025}) {
    cases.push_back({cols, greedy, LogitFill::kCoarse, 3, 5});
    cases.push_back({cols, plain});
    cases.push_back({cols, all_cuts, LogitFill::kNormal, 9, 3});
  }
  for (LogitFill fill :
       {LogitFill::kCoarse, LogitFill::kEqual, LogitFill::kHoles, LogitFill::kOneFinite, LogitFill::kHuge}) {
    for (const Sampling& how : {plain, all_cuts, Sampling{1.0F, 7}, Sampling{1.5F, 0, 0.37F},
                                Sampling{0.5F, 0, 1.0F, 0.11F}, Sampling{0.0F, 3, 0.5F, 0.5F}}) {
      cases.push_back({257, how, fill});
    }
  }
  for (float temperature : {1e-39F, 1e-3F, 0.1F, 10.0F, 1000.0F}) {
    cases.push_back({515, {temperature, 0, 0.95F}, LogitFill::kCoarse});
  }
  cases.push_back({32003, all_cuts, LogitFill::kNormal, 3});
  cases.push_back({32003, plain, LogitFill::kNormal, 2});
  cases.push_back({40000, greedy, LogitFill::kCoarse, 2});
  // Many blocks: equal values in one bin, ordered by id; thousands of nearly equal values in one bin, around
  // zero; a large vocabulary.
  cases.push_back({20000, {1.0F, 12345}, LogitFill::kEqual, 3});
  cases.push_back({20000, {0.7F, 0, 0.25F, 1.0F}, LogitFill::kEqual, 1});
  cases.push_back({9000, {1.0F, 4500}, LogitFill::kNeighbours, 3});
  cases.push_back({9000, {1.0F, 4501, 0.999F}, LogitFill::kNeighbours, 1});
  // Vocabularies around a task's 2^14 columns; one vector and less than one more; cuts at their limits.
  for (int64_t cols : {4, 7, 16, 17, 16383, 16385, 40001}) {
    for (const Sampling& how :
         {Sampling{1.0F, 0, 0.0F}, Sampling{0.8F, 0, 1e-6F}, Sampling{3.0F, 0, 0.999999F},
          Sampling{1.0F, 1, 0.95F}, Sampling{40.0F, 0, 0.95F}, Sampling{0.9F, 0, 1.0F, 1.0F},
          Sampling{2.0F, 0, 1.0F, 1e-20F}, Sampling{1.0F, 1 << 30, 0.9F, 0.2F}}) {
      cases.push_back({cols, how, LogitFill::kCoarse, 3});
      cases.push_back({cols, how, LogitFill::kHoles, 3, 1});
    }
  }
  cases.push_back({16400, {1e-39F, 9000, 0.95F, 0.5F}, LogitFill::kNeighbours, 3});
  cases.push_back({131072, plain, LogitFill::kNormal, 1});
  cases.push_back({131072, {0.8F, 1000, 0.95F, 0.001F}, LogitFill::kNormal, 1});
  return cases;
}

inline std::vector<float> logits_of(const DrawCase& c) {
  Rng rng(18);
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> logits = rng.normals(c.rows * c.cols, 4.0F);
  for (size_t i = 0; i < logits.size(); ++i) {
    float& x = logits[i];
    const auto column = static_cast<int64_t>(i) % c.cols;
    if (c.fill == LogitFill::kCoarse) x = std::round(x);
    if (c.fill == LogitFill::kEqual) x = -2.5F;
    if (c.fill == LogitFill::kHoles && column % 3 != 1) x = column % 3 == 0 ? -inf : std::nanf("");
    if (c.fill == LogitFill::kOneFinite && column != c.cols / 2) x = -inf;
    if (c.fill == LogitFill::kHuge) x = x > 0 ? 3e38F : column % 2 == 0 ? -3e38F : -0.0F;
    if (c.fill == LogitFill::kNeighbours) x = static_cast<float>(column * 7919 % 9000 - 4500) * 1e-9F;
  }
  return logits;
}

inline std::vector<int32_t> drawn_from(Backend& backend, const std::vector<float>& logits,
                                       const std::vector<Sampling>& how, const std::vector<double>& uniforms,
                                       int64_t gap = 0) {
  const auto rows = static_cast<int64_t>(uniforms.size());
  const Tensor tensor(backend, logits, rows, static_cast<int64_t>(logits.size()) / rows, DType::kF32, gap);
  std::vector<int32_t> ids(uniforms.size(), -77);
  const bool greedy = std::ranges::all_of(how, [](const Sampling& row) { return row.temperature <= 0; });
  backend.draw(tensor.view(), how, greedy ? std::span<const double>() : std::span(uniforms));
  backend.read_drawn(ids);
  return ids;
}

// The reference's token, or its neighbour if the uniform number is within 1e-9 of their border.
inline void check_draw(Backend& tested, Backend& reference, const DrawCase& c) {
  Rng rng(19);
  std::vector<double> uniforms = {0.0, 1 - 0x1p-53};
  while (std::ssize(uniforms) < c.rows) uniforms.push_back(rng.uniform());
  uniforms.resize(static_cast<size_t>(c.rows));
  if (c.rows == 1) uniforms = {0.6};
  const std::vector<float> logits = logits_of(c);
  const std::vector<Sampling> how = c.of_rows();
  const std::vector<int32_t> actual = drawn_from(tested, logits, how, uniforms, c.gap);
  const std::vector<int32_t> expected = drawn_from(reference, logits, how, uniforms);
  for (int64_t t = 0; t < c.rows; ++t) {
    const auto i = static_cast<size_t>(t);
    if (actual[i] == expected[i]) continue;
    const double below = std::max(0.0, uniforms[i] - 1e-9), above = std::min(1 - 0x1p-53, uniforms[i] + 1e-9);
    const std::vector<float> row(logits.begin() + t * c.cols, logits.begin() + (t + 1) * c.cols);
    EXPECT_TRUE(actual[i] == drawn_from(reference, row, {how[i]}, {below})[0] ||
                actual[i] == drawn_from(reference, row, {how[i]}, {above})[0])
        << "u = " << uniforms[i] << ": " << actual[i] << ", expected " << expected[i];
  }
}

// Uniform numbers are evenly spaced: counts equal probabilities to within one draw.
inline void check_draw_distribution(Backend& backend) {
  constexpr int kDraws = 200;
  const std::vector<double> p = {0.05, 0.3, 0.0, 0.25, 0.4};
  std::vector<float> logits;
  std::vector<double> uniforms;
  for (int i = 0; i < kDraws; ++i) {
    uniforms.push_back((i + 0.5) / kDraws);
    for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  }
  std::vector<int> counts(p.size());
  for (int32_t id : drawn_from(backend, logits, std::vector(uniforms.size(), Sampling{1.0F}), uniforms))
    ++counts.at(static_cast<size_t>(id));
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(counts[i], kDraws * p[i], 1.0) << i;
}

inline void check_draw_oddities(Backend& backend) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto one = [&](const std::vector<float>& row, const Sampling& how, double uniform = 0.5) {
    return drawn_from(backend, row, {how}, {uniform})[0];
  };
  for (const Sampling& how : {Sampling{}, Sampling{1.0F}}) {
    EXPECT_EQ(one({nan, nan}, how), -1);
    EXPECT_EQ(one({-inf, -inf, nan}, how), -1);
    EXPECT_EQ(one({nan, -inf}, how), -2);
    EXPECT_EQ(one({1, inf, 2}, how), -2);
    EXPECT_EQ(one({1, inf, nan, inf}, how), -2);
    EXPECT_EQ(one({nan, 4, -inf}, how), 1);
    EXPECT_EQ(one({100, 100 + 90, nan}, how), 1);
  }
  // Without samplings or without uniforms, every row takes its largest logit.
  const std::vector<float> rows = {1, 3, 2, 9, 9, -inf, nan, -inf, nan};
  const Tensor logits(backend, rows, 3, 3);
  const std::vector<Sampling> samplings(3, {5.0F, 0, 0.99F});
  const std::vector<double> uniforms = {0.999, 0.999, 0.999};
  for (const bool given : {false, true}) {
    std::vector<int32_t> ids(3, -77);
    backend.draw(logits.view(), given ? std::span(samplings) : std::span<const Sampling>(),
                 given ? std::span<const double>() : std::span(uniforms));
    backend.read_drawn(ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{1, 0, -2})) << given;
  }
  EXPECT_EQ(one({nan, 1, 2, nan, 2}, {}), 2);
  EXPECT_EQ(one({-0.0F, 0.0F}, {}), 0);
  for (size_t n : {5U, 64U, 200U}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> row(n, -3.0F);
      row[(at + n / 2) % n] = nan;
      row[at] = -2.0F;
      EXPECT_EQ(one(row, {}), static_cast<int32_t>(at)) << n;
    }
  }
  // -0 and 0 are equal: the lower id wins.
  EXPECT_EQ(one({-0.0F, 0.0F}, {1.0F, 1}, 0.9), 0);
  EXPECT_EQ(one({0.0F, -0.0F}, {1.0F, 0, 0.5F}, 0.9), 0);
  // Top-p ignores tokens cut by top-k: of 0.4, 0.3, 0.3 the first is 4/7 of the remaining two.
  const std::vector<float> three = {std::log(0.3F), std::log(0.4F), std::log(0.3F)};
  EXPECT_EQ(one(three, {1.0F, 2, 0.57F}, 0.99), 1);
  EXPECT_EQ(one(three, {1.0F, 2, 0.58F}, 0.99), 0);
  EXPECT_EQ(one(three, {1.0F, 0, 0.57F}, 0.99), 0);
}

// embed reads drawn ids from device memory, in any order, mixed with other tokens: more rows than a CUDA
// launch holds, some without a finite maximum.
inline void check_embed_of_drawn(Backend& tested, Backend& reference) {
  constexpr int64_t kRows = 20, kCols = 33, kDim = 6;
  Rng rng(31);
  std::vector<float> values = rng.normals(kRows * kCols, 3.0F);
  std::fill_n(values.begin() + 2 * kCols, kCols, std::nanf(""));
  std::fill_n(values.begin() + 18 * kCols, kCols, -INFINITY);
  values[5 * kCols + 7] = INFINITY;
  std::vector<double> uniforms(kRows);
  for (double& u : uniforms) u = rng.uniform();
  const std::vector<float> table = rng.normals(kCols * kDim);
  const Tensor logits(tested, values, kRows, kCols), weights(tested, table, kCols, kDim),
      out(tested, kRows, kDim);
  std::vector<int32_t> order;
  for (size_t row = 0; row < kRows; ++row) order.push_back(drawn_token((row * 7 + 3) % kRows));
  order[4] = 9;
  for (const float temperature : {0.0F, 0.8F, 0.0F}) {
    const std::vector<Sampling> how(kRows, {.temperature = temperature});
    const std::vector<int32_t> expected = drawn_from(reference, values, how, uniforms);
    EXPECT_LT(expected[5], 0);
    tested.draw(logits.view(), how, uniforms);
    tested.embed(order, weights.view(), 2.0F, out.view());
    std::vector<int32_t> ids(kRows, -77);
    tested.read_drawn(ids);
    EXPECT_EQ(ids, expected);
    std::vector<float> rows;
    for (const int32_t token : order) {
      const int32_t id = token < 0 ? token_of(expected[static_cast<size_t>(-1 - token)]) : token;
      for (int64_t i = 0; i < kDim; ++i) rows.push_back(2.0F * table[static_cast<size_t>(id * kDim + i)]);
    }
    EXPECT_EQ(out.values(), rows);
  }
}

}  // namespace lariat::test
