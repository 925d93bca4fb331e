#pragma once
#include <ostream>

#include "kernels/quant.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {

struct LinearCase {
  DType weights, compute;
};

inline void PrintTo(const LinearCase& c, std::ostream* out) {
  *out << name_of(c.weights) << " weights, computed in " << name_of(c.compute);
}

inline std::vector<LinearCase> linear_cases() {
  return {{DType::kF32, DType::kF32},  {DType::kF16, DType::kF32},  {DType::kBF16, DType::kF32},
          {DType::kF32, DType::kBF16}, {DType::kF16, DType::kBF16}, {DType::kBF16, DType::kBF16}};
}

struct LinearShape {
  int64_t m, n, k;
};

struct LinearProblem {
  LinearCase dtypes;
  LinearShape shape;
  std::vector<float> x, w, bias;

  LinearProblem(const LinearCase& c, const LinearShape& s, bool with_bias, uint64_t seed = 21)
      : dtypes(c), shape(s) {
    Rng rng(seed);
    x = rng.normals(s.m * s.k);
    w = rng.normals(s.n * s.k);
    if (with_bias) bias = rng.normals(s.n);
    // Representable values: the host knows the operands.
    for (float& value : bias) value = round_to_bf16(value);
    for (float& value : w) value = rounded_to(c.weights, value);
  }

  std::vector<float> run(Backend& backend, int64_t first, int64_t count, int64_t gap = 0) const {
    const auto begin = x.begin() + first * shape.k;
    const Tensor rows(backend, {begin, begin + count * shape.k}, count, shape.k, DType::kF32, gap);
    const bool quantized = is_quantized(dtypes.weights);
    ReferenceBackend host;
    const Tensor weights(quantized ? host : backend, w, shape.n, shape.k,
                         quantized ? DType::kF32 : dtypes.weights, gap);
    const Loaded loaded = quantized || backend.traits().copies_bf16
                              ? load_one(backend, weights.view(), dtypes.weights, dtypes.compute)
                              : Loaded{weights.view(), Buffer()};
    const Tensor out(backend, count, shape.n, gap);
    const Tensor b = bias.empty() ? Tensor() : Tensor(backend, bias, 1, shape.n, DType::kBF16);
    multiply(backend, rows.view(), loaded.matrix, b.view(), dtypes.compute, out.view());
    return out.values();
  }
  std::vector<float> run(Backend& backend, int64_t gap = 0) const { return run(backend, 0, shape.m, gap); }

  // Error of f32 accumulation. Each of the k additions rounds its partial sum s_j by at most u |s_j|, u =
  // 2^-24. For random signs |s_j| ~ sqrt(j) and roundings are independent: the error is about u k / sqrt(2),
  // while S = sum |x_i w_i| is about 0.64 k. So a standard deviation is about u S for any grouping. Chance
  // does not reach 8 u S, a hundredth of one wrong rounding to bf16 (2^-9 per product). Quantized: a group's
  // sum is exact; values differ from w by at most half a step of 1/8 of the largest.
  double tolerance(int64_t row, int64_t o) const {
    const double step = is_quantized(dtypes.weights) ? 0.3 : 0;
    double magnitude = bias.empty() ? 0 : std::abs(bias[static_cast<size_t>(o)]);
    for (int64_t i = 0; i < shape.k; ++i) {
      magnitude += std::abs(static_cast<double>(x[static_cast<size_t>(row * shape.k + i)])) *
                   (std::abs(w[static_cast<size_t>(o * shape.k + i)]) + step);
    }
    return 8 * 0x1p-24 * magnitude;
  }

  // Error in units of the tolerance. The reference computes some rows of large products, also the first and
  // last.
  double worst_error(Backend& reference, const std::vector<float>& actual) const {
    const auto [m, n, k] = shape;
    const bool large = m * n * k > 1000000;
    const int64_t count = large ? 1 : m;
    double worst = 0;
    for (int64_t first = 0; first < m; first += std::max(count, std::min<int64_t>(13, m - 1 - first))) {
      const std::vector<float> expected = run(reference, first, count);
      for (int64_t i = 0; i < count * n; ++i) {
        const float value = actual[static_cast<size_t>(first * n + i)],
                    exact = expected[static_cast<size_t>(i)];
        const double error = std::abs(static_cast<double>(value) - exact);
        worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / tolerance(first + i / n, i % n));
      }
    }
    return worst;
  }

  LinearProblem in_bf16() const {
    ReferenceBackend host;
    LinearProblem problem = *this;
    problem.dtypes = {DType::kBF16, DType::kBF16};
    const Loaded loaded = load_one(host, Tensor(host, w, shape.n, shape.k).view(), dtypes.weights);
    for (int64_t i = 0; i < shape.n * shape.k; ++i) {
      problem.w[static_cast<size_t>(i)] = round_to_bf16(dequantized(loaded.matrix, i / shape.k, i % shape.k));
    }
    return problem;
  }
};

// Products of more than most_integers rows use the weights' bf16 values.
inline void check_linear(Backend& tested, Backend& reference, const LinearCase& c, const LinearShape& shape,
                         int64_t gap = 0, bool with_bias = false,
                         int64_t most_integers = std::numeric_limits<int64_t>::max()) {
  const LinearProblem problem(c, shape, with_bias);
  const bool bf16 = is_quantized(c.weights) && shape.m > most_integers;
  ASSERT_LE((bf16 ? problem.in_bf16() : problem).worst_error(reference, problem.run(tested, gap)), 1.0)
      << testing::PrintToString(c) << ": m " << shape.m << " n " << shape.n << " k " << shape.k << " gap "
      << gap;
}

// Odd, tiny and unaligned sizes, sizes around vector and block widths, and of real models.
inline void check_linear_shapes(Backend& tested, Backend& reference, const LinearCase& c,
                                int64_t most_integers = 130) {
  constexpr int64_t kSizes[][2] = {{1, 1},     {1, 257},   {3, 1},     {3, 31},    {31, 3},    {16, 32},
                                   {64, 64},   {72, 100},  {100, 72},  {257, 31},  {172, 172}, {31, 512},
                                   {257, 257}, {512, 100}, {24, 2048}, {13, 3073}, {2048, 64}};
  for (const auto& [n, k] : kSizes) {
    for (int64_t m : {1, 2, 3, 7, 8, 9, 17, 64, 130}) {
      check_linear(tested, reference, c, {m, n, k}, 0, false, most_integers);
    }
  }
}

inline void check_linear_strides_and_bias(Backend& tested, Backend& reference, const LinearCase& c,
                                          int64_t most_integers = 64) {
  for (int64_t m : {1, 5, 17, 64}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{3, 31}, {72, 100}, {257, 257}}) {
      check_linear(tested, reference, c, {m, n, k}, 3, true, most_integers);
    }
  }
}

// Chunks equal one shot up to rounding; single rows equal rows of any small batch.
inline void check_linear_splits(Backend& tested, const LinearCase& c) {
  const LinearProblem problem(c, {66, 172, 512}, false);
  const std::vector<float> whole = problem.run(tested);
  std::vector<float> parts;
  for (int64_t first = 0, count = 1; first < problem.shape.m; first += count, count = count * 3 % 29) {
    count = std::min(count, problem.shape.m - first);
    const std::vector<float> part = problem.run(tested, first, count);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  const double typical = std::sqrt(static_cast<double>(problem.shape.k));  // a sum of k products of normals
  expect_close(parts, whole, 1e-5 * typical, 0, "rows in parts");
}

inline void check_linear_nan(Backend& tested, const LinearCase& c) {
  for (int64_t m : {2, 20}) {
    LinearProblem problem(c, {m, 40, 71}, false);
    problem.x[2 * 71 - 1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = problem.run(tested);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(std::isnan(out[i]), i / 40 == 1) << "m " << m << " " << i;
  }
}

struct EpilogueCase {
  Epilogue::Kind kind;
  std::vector<DType> weights;
  DType compute = DType::kF32;
  DType stored = DType::kF32;  // inputs, and outputs of gated unit and norm
  Activation activation = Activation::kSilu;
  bool bias = false;
};

inline void PrintTo(const EpilogueCase& c, std::ostream* out) {
  *out << "epilogue " << static_cast<int>(c.kind) << " of";
  for (const DType weights : c.weights) *out << " " << name_of(weights);
  *out << " weights, computed in " << name_of(c.compute) << ", stored in " << name_of(c.stored)
       << ", activation " << static_cast<int>(c.activation) << (c.bias ? ", bias" : "");
}

// Dtypes in which a backend may store bf16 inputs.
inline std::vector<EpilogueCase> epilogue_cases(std::initializer_list<DType> all_stored) {
  using Kind = Epilogue::Kind;
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, q8 = DType::kQ8, q4 = DType::kQ4;
  std::vector<EpilogueCase> cases;
  for (const DType w : {f32, f16, bf16, q8, q4}) {
    cases.push_back({Kind::kNone, {w, w, w}, f32, f32, {}, true});
    cases.push_back({Kind::kResidual, {w}, f32, f32, {}, w == f32});
    cases.push_back({Kind::kGated, {w, w}, f32, f32, Activation::kGeluTanh, w == bf16});
    cases.push_back({Kind::kGated, {w}, f32, f32, Activation::kGelu, true});
    cases.push_back({Kind::kGated, {w}, f32, f32, Activation::kRelu2});
    cases.push_back({Kind::kCap, {w}, f32, f32, {}, w != f32});
  }
  for (const DType stored : all_stored) {
    for (const bool bias : {false, true}) {
      cases.push_back({Kind::kNone, {bf16, bf16, bf16}, bf16, stored, {}, bias});
      cases.push_back({Kind::kResidual, {bf16}, bf16, stored, {}, bias});
      cases.push_back({Kind::kGated, {bf16, bf16}, bf16, stored, Activation::kSilu, bias});
    }
    cases.push_back({Kind::kGated, {bf16, bf16}, bf16, stored, Activation::kGeluTanh});
    cases.push_back({Kind::kGated, {bf16}, bf16, stored, Activation::kGelu});
    cases.push_back({Kind::kGated, {bf16}, bf16, stored, Activation::kRelu2});
    cases.push_back({Kind::kGated, {bf16, bf16}, bf16, stored, Activation::kRelu2});
    cases.push_back({Kind::kCap, {bf16}, bf16, stored});
  }
  cases.push_back({Kind::kNone, {bf16, f16, bf16}, bf16});
  cases.push_back({Kind::kNone, {f16, f32, f16}});
  cases.push_back({Kind::kNone, {q8, q4, bf16}});
  cases.push_back({Kind::kGated, {q8, bf16}});
  cases.push_back({Kind::kResidual, {f16}, bf16, f32, {}, true});
  return cases;
}

// rows: outputs of the first block.
struct EpilogueShape {
  int64_t tokens, cols, rows, gap = 0;
};

// Seeds are far apart: neighbouring seeds give shifted copies of the same numbers.
class EpilogueRun {
 public:
  EpilogueRun(Backend& backend, const EpilogueCase& c, const EpilogueShape& s)
      : backend_(backend), c_(c), s_(s), norm_(backend, {s.tokens, s.rows}, {}, 1e-6F) {
    weight_.compute = c.compute;
    for (size_t i = 0; i < c.weights.size(); ++i) {
      const int64_t rows = c.kind == Epilogue::Kind::kNone ? s.rows + 7 * static_cast<int64_t>(i) : s.rows;
      std::vector<float> values = Rng(1000000 * (i + 1)).normals(rows * s.cols, 0.2F);
      RowBlock block;
      if (is_quantized(c.weights[i])) {
        quantized_.push_back(
            load_one(backend, Matrix(values.data(), DType::kF32, rows, s.cols), c.weights[i]));
        block.w = quantized_.back().matrix;
      } else {
        floats_.emplace_back(backend, values, rows, s.cols, c.weights[i], s.gap);
        block.w = floats_.back().view();
      }
      if (c.bias && i != 1) {
        biases_.emplace_back(backend, Rng(50000000 + i).normals(rows), 1, rows);
        block.bias = biases_.back().view();
      }
      weight_.blocks.push_back(block);
    }
  }

  // Products without epilogue, of inputs stored as `x`.
  std::vector<float> products(DType x = DType::kF32) const {
    const Tensor out(backend_, s_.tokens, weight_.rows());
    backend_.linear(input(x).view(), weight_, {}, out.view());
    return out.values();
  }
  std::vector<float> gated(DType x, DType stored) const {
    const Tensor out(backend_, s_.tokens, s_.rows, s_.gap, stored);
    backend_.linear(input(x).view(), weight_, Epilogue::gated(c_.activation), out.view());
    return out.values();
  }
  std::vector<float> capped(DType x, float scale, float cap) const {
    const Tensor out(backend_, s_.tokens, s_.rows, s_.gap);
    backend_.linear(input(x).view(), weight_, Epilogue::capped(scale, cap), out.view());
    return out.values();
  }
  struct Sum {
    std::vector<float> residual, out;
  };
  static std::vector<float> residual_of(const EpilogueShape& s) { return Rng(82).normals(s.tokens * s.rows); }
  Sum added(float scale, bool norm, DType stored) const {
    const Tensor residual(backend_, residual_of(s_), s_.tokens, s_.rows, DType::kF32, s_.gap);
    const Tensor out(backend_, s_.tokens, s_.rows, 0, stored);
    backend_.linear(input(stored).view(), weight_,
                    Epilogue::add_to(residual.view(), scale, norm ? norm_.norm : Norm()), out.view());
    return {residual.values(), out.values()};
  }

 private:
  Tensor input(DType dtype) const {
    return {backend_, Rng(91).normals(s_.tokens * s_.cols), s_.tokens, s_.cols, dtype, s_.gap};
  }

  Backend& backend_;
  const EpilogueCase& c_;
  const EpilogueShape& s_;
  NormData norm_;
  Weight weight_;
  std::vector<Loaded> quantized_;
  std::vector<Tensor> floats_, biases_;
};

// `sum`: a product's error (LinearProblem::tolerance, a normal times 0.2). Activations are at most 1.13
// steep, or twice as steep as the erroneous gate; a few f32 units cover exp and erf. A bf16 out rounds the
// result and may round the products (half a unit of 8 bits).
inline double gated_bound(Activation activation, double sum, double gate, double up, double activated,
                          bool bf16) {
  const double half = bf16 ? half_ulp(DType::kBF16) : 0;
  const double of_gate = half * (std::abs(gate) + sum) + sum, of_up = half * (std::abs(up) + sum) + sum;
  const double out = activated * up;
  const double steep = activation == Activation::kRelu2 ? 2 * (std::abs(gate) + of_gate) : 1.13;
  const double error =
      steep * of_gate * (std::abs(up) + of_up) + std::abs(activated) * of_up + 1e-5 * std::abs(out) + 1e-30;
  return error + half * (std::abs(out) + error);
}

inline void check_gated(Backend& tested, Backend& reference, const EpilogueCase& c, const EpilogueShape& s,
                        double sum) {
  const EpilogueRun actual(tested, c, s), expected(reference, c, s);
  const std::vector<float> out = actual.gated(c.stored, c.stored), exact = expected.products();
  const int64_t blocks = std::ssize(c.weights);
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t o = 0; o < s.rows; ++o) {
      const auto at = static_cast<size_t>(t * blocks * s.rows + o);
      const float gate = exact[at], up = blocks == 2 ? exact[at + static_cast<size_t>(s.rows)] : 1.0F;
      const Tensor value(reference, std::vector<float>(1, gate), 1, 1), made(reference, 1, 1);
      reference.glu(value.view(), Matrix(), c.activation, made.view());
      const double activated = made.values()[0];
      ASSERT_NEAR(out[static_cast<size_t>(t * s.rows + o)], activated * up,
                  gated_bound(c.activation, sum, gate, up, activated, c.stored == DType::kBF16))
          << "token " << t << " column " << o << ", gate " << gate << ", up " << up;
    }
  }
}

inline void check_added(Backend& tested, Backend& reference, const EpilogueCase& c, const EpilogueShape& s,
                        double sum) {
  constexpr float kScale = 0.22F;
  const EpilogueRun actual(tested, c, s), expected(reference, c, s);
  const std::vector<float> before = EpilogueRun::residual_of(s), products = expected.products();
  std::vector<float> exact(before.size());
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = before[i] + kScale * products[i];
  for (const bool norm : {false, true}) {
    const EpilogueRun::Sum added = actual.added(kScale, norm, c.stored);
    expect_close(added.residual, exact, kScale * sum + 4 * 0x1p-24 * largest_magnitude(exact), 0, "residual");
    if (!norm) continue;
    const Tensor of_sum(reference, added.residual, s.tokens, s.rows);
    reference.norm(of_sum.view(), NormData(reference, {s.tokens, s.rows}, {}, 1e-6F).norm, of_sum.view());
    if (c.stored == DType::kF32) {
      expect_normed(added.out, of_sum.values(), {}, "norm");
    } else {
      expect_close(added.out, of_sum.values(), 1e-5, half_ulp(c.stored), "norm");
    }
  }
}

inline void check_epilogue(Backend& tested, Backend& reference, const EpilogueCase& c,
                           const EpilogueShape& s) {
  using Kind = Epilogue::Kind;
  SCOPED_TRACE(testing::Message() << testing::PrintToString(c) << ": " << s.tokens << " tokens, " << s.cols
                                  << " to " << s.rows << ", gap " << s.gap);
  const double sum = 8 * 0x1p-24 * 0.64 * 0.2 * static_cast<double>(s.cols + 10);
  if (c.kind == Kind::kGated) return check_gated(tested, reference, c, s, sum);
  if (c.kind == Kind::kResidual) return check_added(tested, reference, c, s, sum);
  const EpilogueRun actual(tested, c, s), expected(reference, c, s);
  if (c.kind == Kind::kCap) {
    expect_close(actual.capped(c.stored, 0.125F, 0.0F), expected.capped(DType::kF32, 0.125F, 0.0F),
                 0.125 * sum, 0, "scaled");
    expect_close(actual.capped(c.stored, 1.0F, 3.0F), expected.capped(DType::kF32, 1.0F, 3.0F),
                 sum + 3 * 5 * 0x1p-24, 0, "capped");
    return;
  }
  const std::vector<float> products = actual.products(c.stored);
  expect_close(products, expected.products(), sum, 0, "products");
  // bf16 inputs equal the inputs that a bf16 product rounds.
  if (c.stored == DType::kBF16) expect_close(products, actual.products(), 0, 0, "f32 inputs");
}

}  // namespace lariat::test
