#pragma once
#include <ostream>

#include "tests/kernels/tensors.h"

// Cases of matmul: every weight dtype and compute dtype over a table of shapes.
namespace lariat::test {

struct MatmulCase {
  DType weights, compute;
};

inline void PrintTo(const MatmulCase& c, std::ostream* out) {
  *out << name_of(c.weights) << " weights, computed in " << name_of(c.compute);
}

inline std::vector<MatmulCase> matmul_cases() {
  return {{DType::kF32, DType::kF32},  {DType::kF16, DType::kF32},  {DType::kBF16, DType::kF32},
          {DType::kF32, DType::kBF16}, {DType::kF16, DType::kBF16}, {DType::kBF16, DType::kBF16}};
}

struct MatmulShape {
  int64_t m, n, k;
};

// One product: its values on the host, and how to run it on a backend.
struct MatmulProblem {
  MatmulCase dtypes;
  MatmulShape shape;
  std::vector<float> x, w, bias;  // bias: empty for none

  MatmulProblem(const MatmulCase& c, const MatmulShape& s, bool with_bias, uint64_t seed = 21)
      : dtypes(c), shape(s) {
    Rng rng(seed);
    x = rng.normals(s.m * s.k);
    w = rng.normals(s.n * s.k);
    if (with_bias) bias = rng.normals(s.n);
    // Values that the weights' dtype can hold, so that the host knows what is multiplied.
    for (float& value : w) {
      if (c.weights != DType::kF32)
        value = c.weights == DType::kF16 ? round_to_f16(value) : round_to_bf16(value);
    }
  }

  // Rows [first, first + count) of the product.
  std::vector<float> run(Backend& backend, int64_t first, int64_t count, int64_t gap = 0) const {
    const auto begin = x.begin() + first * shape.k;
    const Tensor rows(backend, {begin, begin + count * shape.k}, count, shape.k, DType::kF32, gap);
    const Tensor weights(backend, w, shape.n, shape.k, dtypes.weights, gap);
    const Tensor out(backend, count, shape.n, gap);
    const Tensor b = bias.empty() ? Tensor() : Tensor(backend, bias, 1, shape.n);
    backend.matmul(rows.view(), weights.view(), b.view(), dtypes.compute, out.view());
    return out.values();
  }
  std::vector<float> run(Backend& backend, int64_t gap = 0) const { return run(backend, 0, shape.m, gap); }

  // What f32 accumulation may cost. Each of the k additions rounds its partial sum s_j by at most u |s_j|,
  // u = 2^-24. For values of random sign |s_j| ~ sqrt(j) and the roundings are independent, so that the whole
  // error is about u k / sqrt(2), while S = sum |x_i w_i| is about 0.64 k: one standard deviation is about
  // u S however the sum is grouped. 8 u S is never exceeded by chance, and is a hundred times less than what
  // a forgotten or a superfluous rounding to bf16 (2^-9 per product) costs.
  double tolerance(int64_t row, int64_t o) const {
    double magnitude = bias.empty() ? 0 : std::abs(bias[static_cast<size_t>(o)]);
    for (int64_t i = 0; i < shape.k; ++i) {
      magnitude += std::abs(static_cast<double>(x[static_cast<size_t>(row * shape.k + i)]) *
                            w[static_cast<size_t>(o * shape.k + i)]);
    }
    return 8 * 0x1p-24 * magnitude;
  }
};

inline void check_matmul(Backend& tested, Backend& reference, const MatmulCase& c, const MatmulShape& shape,
                         int64_t gap = 0, bool with_bias = false) {
  SCOPED_TRACE(testing::Message() << "m " << shape.m << " n " << shape.n << " k " << shape.k << " gap "
                                  << gap);
  const MatmulProblem problem(c, shape, with_bias);
  const std::vector<float> actual = problem.run(tested, gap);
  // Of large products the reference computes some rows only, the first and the last among them.
  const bool large = shape.m * shape.n * shape.k > 1000000;
  for (int64_t row = 0; row < shape.m;
       row += large && row + 1 < shape.m ? std::min<int64_t>(13, shape.m - 1 - row) : 1) {
    const std::vector<float> expected = problem.run(reference, row, 1);
    for (int64_t o = 0; o < shape.n; ++o) {
      ASSERT_NEAR(actual[static_cast<size_t>(row * shape.n + o)], expected[static_cast<size_t>(o)],
                  problem.tolerance(row, o))
          << "row " << row << " column " << o;
    }
  }
}

// Odd, tiny and unaligned sizes, sizes just around vector and block widths, and some of real models.
inline void check_matmul_shapes(Backend& tested, Backend& reference, const MatmulCase& c) {
  constexpr int64_t kSizes[][2] = {{1, 1},     {1, 257},   {3, 1},     {3, 31},    {31, 3},   {64, 64},
                                   {72, 100},  {100, 72},  {257, 31},  {172, 172}, {31, 512}, {257, 257},
                                   {512, 100}, {24, 2048}, {13, 3073}, {2048, 64}};
  for (const auto& [n, k] : kSizes) {
    for (int64_t m : {1, 2, 3, 7, 8, 9, 17, 64, 130}) check_matmul(tested, reference, c, {m, n, k});
  }
}

inline void check_matmul_strides_and_bias(Backend& tested, Backend& reference, const MatmulCase& c) {
  for (int64_t m : {1, 5, 17, 64}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{3, 31}, {72, 100}, {257, 257}}) {
      check_matmul(tested, reference, c, {m, n, k}, 3, true);
    }
  }
}

// A chunked prefill must give what one shot gives, up to rounding; and rows that are computed
// one by one must be what they are in any small batch.
inline void check_matmul_splits(Backend& tested, const MatmulCase& c) {
  const MatmulProblem problem(c, {66, 172, 512}, false);
  const std::vector<float> whole = problem.run(tested);
  std::vector<float> parts;
  for (int64_t first = 0, count = 1; first < problem.shape.m; first += count, count = count * 3 % 29) {
    count = std::min(count, problem.shape.m - first);
    const std::vector<float> part = problem.run(tested, first, count);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  const double typical =
      std::sqrt(static_cast<double>(problem.shape.k));  // of a sum of k products of normals
  expect_close(parts, whole, 1e-5 * typical, 0, "rows in parts");
}

inline void check_matmul_nan(Backend& tested, const MatmulCase& c) {
  for (int64_t m : {2, 20}) {
    MatmulProblem problem(c, {m, 40, 71}, false);
    problem.x[2 * 71 - 1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = problem.run(tested);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(std::isnan(out[i]), i / 40 == 1) << "m " << m << " " << i;
  }
}

}  // namespace lariat::test
