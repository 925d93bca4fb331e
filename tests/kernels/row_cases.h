#pragma once
#include <numbers>
#include <ostream>

#include "tests/kernels/tensors.h"

namespace lariat::test {

struct RowCase {
  int64_t rows, cols;
  DType dtype = DType::kF32;  // table or weight
  int64_t gap = 0;            // between rows
};

inline void PrintTo(const RowCase& c, std::ostream* out) {
  *out << c.rows << "x" << c.cols << " " << name_of(c.dtype) << " gap " << c.gap;
}

// Tiny, odd, around vector lengths, large enough for several threads.
inline std::vector<RowCase> row_cases() {
  std::vector<RowCase> cases;
  for (int64_t cols : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 1000}) {
    cases.push_back({1, cols});
    cases.push_back({3, cols, DType::kBF16, 5});
  }
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    cases.push_back({2, 4096, dtype});
    cases.push_back({37, 2051, dtype, 3});
    cases.push_back({1, 32003, dtype});
  }
  return cases;
}

// Widening to f32 does not round, one product rounds once.
inline void check_embed(Backend& tested, Backend& reference, const RowCase& c, float scale = 1.0F) {
  Rng rng(11);
  const int64_t vocab = 97;
  const std::vector<float> table = rng.normals(vocab * c.cols);
  std::vector<int32_t> tokens(static_cast<size_t>(c.rows));
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng.next() % vocab);
  tokens[0] = vocab - 1;
  const auto run = [&](Backend& backend) {
    const Tensor weights(backend, table, vocab, c.cols, c.dtype, c.gap);
    const Tensor out(backend, c.rows, c.cols, c.gap);
    backend.embed(tokens, weights.view(), scale, out.view());
    return out.values();
  };
  expect_close(run(tested), run(reference), 0, 0, "embed");
}

struct NormKind {
  bool centred = false, bias = false;
};
inline constexpr NormKind kNormKinds[] = {{}, {.bias = true}, {.centred = true}, {true, true}};

inline void PrintTo(const NormKind& k, std::ostream* out) {
  *out << (k.centred ? "LayerNorm" : "RMSNorm") << (k.bias ? " with bias" : "");
}

struct NormData {
  Tensor weight, bias;
  Norm norm;

  NormData(Backend& backend, const RowCase& c, NormKind kind, float eps)
      : weight(backend, Rng(121).normals(c.cols), 1, c.cols, c.dtype),
        bias(backend, Rng(122).normals(c.cols), 1, c.cols, c.dtype == DType::kF32 ? DType::kF16 : c.dtype),
        norm{weight.view(), kind.bias ? bias.view() : Matrix(), eps, kind.centred} {}
};

// Squares have one sign: their mean's error stays far below cols * 2^-24 with partial sums per lane, and half
// of it reaches the result. Centred values err by 2^-24 of the largest value, and the bias may cancel its
// operand: both absolute, for values and weights up to 4.
inline void expect_normed(const std::vector<float>& actual, const std::vector<float>& expected, NormKind kind,
                          const std::string& what) {
  expect_close(actual, expected, kind.centred || kind.bias ? 16 * 4 * 0x1p-24 : 0, 2e-6,
               what + " " + testing::PrintToString(kind));
}

inline void check_norm(Backend& tested, Backend& reference, const RowCase& c, NormKind kind,
                       float scale = 1.0F, float mean = 0.0F) {
  std::vector<float> x = Rng(12).normals(c.rows * c.cols, scale);
  for (float& value : x) value += mean;
  const auto run = [&](Backend& backend, bool in_place) {
    const Tensor input(backend, x, c.rows, c.cols, DType::kF32, c.gap);
    const NormData data(backend, c, kind, 1e-5F);
    const Tensor out(backend, c.rows, c.cols, c.gap);
    backend.norm(input.view(), data.norm, in_place ? input.view() : out.view());
    return in_place ? input.values() : out.values();
  };
  const std::vector<float> expected = run(reference, false);
  expect_normed(run(tested, false), expected, kind, "norm");
  expect_normed(run(tested, true), expected, kind, "norm in place");
}

// E[x^2] - E[x]^2 would lose every digit; a mean rounded to f32 adds to the spread.
inline void check_norm_large_mean(Backend& tested, Backend& reference) {
  for (const RowCase& c : {RowCase{1, 3}, {2, 64}, {2, 515, DType::kBF16}, {3, 4097, DType::kF16, 3}}) {
    for (const float mean : {30.0F, -1e4F, 3e6F}) {
      check_norm(tested, reference, c, {true, true}, 1.0F, mean);
      check_norm(tested, reference, c, {.centred = true}, 100.0F, mean);
    }
  }
}

// The sum is one FMA or two roundings; scale 1 rounds once. The norm is judged by its actual input.
inline void check_add_norm(Backend& tested, Backend& reference, const RowCase& c, NormKind kind,
                           float scale = 1.0F) {
  Rng rng(13);
  const std::vector<float> x = rng.normals(c.rows * c.cols), delta = rng.normals(c.rows * c.cols);
  const auto run = [&](Backend& backend, bool norm, bool in_place) {
    const Tensor residual(backend, x, c.rows, c.cols, DType::kF32, c.gap);
    const Tensor change(backend, delta, c.rows, c.cols, DType::kF32, c.gap);
    const Tensor out(backend, c.rows, c.cols);
    const NormData data(backend, c, kind, 1e-6F);
    backend.add_norm(residual.view(), change.view(), scale, norm ? data.norm : Norm(),
                     in_place ? change.view() : out.view());
    return std::pair(residual.values(), in_place ? change.values() : out.values());
  };
  const auto normed = [&](const std::vector<float>& sum) {
    const Tensor residual(reference, sum, c.rows, c.cols);
    reference.norm(residual.view(), NormData(reference, c, kind, 1e-6F).norm, residual.view());
    return residual.values();
  };
  const std::vector<float> untouched(x.size(), std::numeric_limits<float>::quiet_NaN());
  const auto expected = run(reference, false, false);
  const double rounding = scale == 1.0F ? 0 : 0x1p-24;
  for (bool in_place : {false, true}) {
    const auto actual = run(tested, true, in_place), added = run(tested, false, in_place);
    for (const auto& residual : {actual.first, added.first}) {
      expect_close(residual, expected.first, rounding * scale * largest_magnitude(delta), 2 * rounding,
                   "residual");
    }
    expect_normed(actual.second, normed(actual.first), kind, "add_norm");
    expect_close(added.second, in_place ? delta : untouched, 0, 0, "no norm");
  }
}

// silu: exp within 2 ulp, addition, division, product, some 5 ulp. tanh gelu exponentiates a polynomial z
// with four roundings: exp(-z), and for z < 0 the result, moves by 4 * 2^-24 |z|. erf gelu: two exponentials
// and a ten-term polynomial, some 12 ulp. The absolute part covers results below f32's full precision.
inline double glu_tolerance(Activation activation, double gate, double expected) {
  const double gelu = 2 * std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
  const double z = activation == Activation::kClamped ? static_cast<double>(kClampedSlope) * gate : gelu;
  if (activation == Activation::kRelu2) return 1e-37 + 2e-7 * std::abs(expected);
  if (activation == Activation::kGelu) return 1e-37 + 7e-7 * std::abs(expected);
  const double argument = activation == Activation::kSilu ? 0 : 4 * 0x1p-24 * std::max(0.0, -z);
  return 1e-33 + (5e-7 + argument) * std::abs(expected);
}

inline void check_glu_of(Backend& tested, Backend& reference, const RowCase& c, Activation activation,
                         const std::vector<float>& x, bool gated) {
  const float spread = activation == Activation::kClamped ? 5.0F : 1.0F;  // one in six is clamped
  const std::vector<float> factor = Rng(115).normals(c.rows * c.cols, spread);
  const auto run = [&](Backend& backend, bool in_place) {
    const Tensor gate(backend, x, c.rows, c.cols, DType::kF32, c.gap);
    const Tensor up(backend, factor, c.rows, c.cols), out(backend, c.rows, c.cols, c.gap);
    backend.glu(gate.view(), gated ? up.view() : Matrix(), activation, in_place ? gate.view() : out.view());
    return in_place ? gate.values() : out.values();
  };
  const std::vector<float> actual = run(tested, false), expected = run(reference, true);
  expect_close(run(tested, true), actual, 0, 0, "glu in place");
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], glu_tolerance(activation, x[i], expected[i]))
        << "glu: element " << i << ", gate " << x[i] << ", up " << factor[i] << (gated ? "" : " (none)");
  }
}

inline void check_glu(Backend& tested, Backend& reference, const RowCase& c, float scale = 3.0F) {
  const std::vector<float> x = Rng(15).normals(c.rows * c.cols, scale);
  for (Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu2}) {
    for (bool gated : {true, false}) check_glu_of(tested, reference, c, activation, x, gated);
  }
  check_glu_of(tested, reference, c, Activation::kClamped, Rng(16).normals(c.rows * c.cols, 5.0F), true);
}

// The whole f32 range: both tails and their ends, around zero, NaN.
inline void check_gelu_range(Backend& tested, Backend& reference) {
  std::vector<float> x = {0.0F,   -0.0F, 1e-30F, -1e-30F, 1e-5F, -1e-5F, 13.4F,
                          -13.4F, 30.0F, -30.0F, -1e4F,   1e30F, -1e30F, 3e38F};
  for (int i = -15 * 256; i <= 15 * 256; ++i) x.push_back(static_cast<float>(i) / 256.0F + 0.0007F);
  const RowCase c{1, static_cast<int64_t>(x.size())};
  check_glu_of(tested, reference, c, Activation::kGelu, x, false);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> odd = {inf, nan, 1.0F, nan, -1.0F};
  const Tensor gate(tested, odd, 1, 5);
  tested.glu(gate.view(), Matrix(), Activation::kGelu, gate.view());
  expect_close(gate.values(), {inf, nan, 0.841344746F, nan, -0.158655254F}, 0, 7e-7, "gelu");
}

// 7 σ(1.702 7) (1 + 7) beyond both limits; the gate has no lower limit; NaN gives NaN.
inline void check_clamped(Backend& tested) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), most = 55.99963F;
  const Tensor gate(tested, {9.0F, 7.0F, 9.0F, -1.0F, nan, 1.0F, -90.0F}, 1, 7);
  const Tensor up(tested, {9.0F, 7.0F, -9.0F, 0.5F, 0.0F, nan, 1.0F}, 1, 7);
  tested.glu(gate.view(), up.view(), Activation::kClamped, gate.view());
  expect_close(gate.values(), {most, most, -0.75F * most, -0.23130635F, nan, nan, 0.0F}, 1e-5, 1e-6,
               "clamped");
}

// Four f32 roundings and, for x <= 0, an exponential within 3 ulp, of terms that may cancel.
inline void check_xielu(Backend& tested, Backend& reference, const RowCase& c, float scale) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = Rng(17).normals(c.rows * c.cols, scale);
  x.front() = 0.0F;
  for (const Xielu& p :
       {Xielu{0.8F, 0.9F, 0.5F, -1e-6F}, {2.5F, 0.6F, 0.25F, -0.75F}, {0.3F, 1.7F, 1.0F, 0.5F}}) {
    const auto run = [&](Backend& backend) {
      const Tensor values(backend, x, c.rows, c.cols, DType::kF32, c.gap);
      backend.xielu(values.view(), p);
      return values.values();
    };
    const std::vector<float> actual = run(tested), expected = run(reference);
    for (size_t i = 0; i < x.size(); ++i) {
      const double value = x[i], power = std::expm1(std::min(value, static_cast<double>(p.eps)));
      const double curve = value > 0 ? p.positive * value * value : p.negative * (std::abs(power) - value);
      ASSERT_NEAR(actual[i], expected[i], 1e-37 + 6 * 0x1p-24 * (curve + p.beta * std::abs(value)))
          << "xielu: element " << i << " of " << x[i] << ", eps " << p.eps;
    }
  }
  const Tensor odd(tested, {nan, 1.0F, nan}, 1, 3);
  tested.xielu(odd.view(), {1.0F, 1.0F, 0.5F, -1e-6F});
  expect_close(odd.values(), {nan, 1.5F, nan}, 0, 0, "xielu");
}

inline std::vector<float> soft_capped(Backend& backend, const std::vector<float>& values, float scale,
                                      float cap) {
  const auto n = static_cast<int64_t>(values.size());
  const Tensor x(backend, values, n, 1), one(backend, std::vector<float>(1, 1.0F), 1, 1), out(backend, n, 1);
  backend.linear(x.view(), weight_of(one.view()), Epilogue::capped(scale, cap), out.view());
  return out.values();
}

// tanh(y) = 1 - 2 / (1 + exp(2 y)), in units of 2^-24. At 0: exp (2 ulp) adds 2, the sum 1, quotient,
// difference and product half each; below 0 the exponential counts less and the sum up to 2. Absolute: a
// small y has no more digits.
inline void check_soft_cap(Backend& tested, Backend& reference, const RowCase& c, float scale, float cap) {
  Rng rng(18);
  const std::vector<float> logits = rng.normals(c.rows * c.cols, 40.0F);
  const auto run = [&](Backend& backend) { return soft_capped(backend, logits, scale, cap); };
  expect_close(run(tested), run(reference), cap * 5 * 0x1p-24, 0, "soft_cap");
}

inline void check_soft_cap_oddities(Backend& backend) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto capped = [&](const std::vector<float>& row, float cap) {
    return soft_capped(backend, row, 0.5F, cap);
  };
  const std::vector<float> row = {inf, -inf, nan, 3e38F, -3e38F, 1e6F, -1e6F, 0.0F, 1e-30F};
  const std::vector<float> bounded = {30, -30, nan, 30, -30, 30, -30, 0, 0};
  expect_close(capped(row, 30.0F), bounded, 1e-5, 0, "with a cap");
  const std::vector<float> halved = {inf, -inf, nan, 1.5e38F, -1.5e38F, 5e5F, -5e5F, 0.0F, 5e-31F};
  expect_close(capped(row, 0.0F), halved, 0, 0, "without a cap");
  for (size_t n : {5U, 64U, 200U}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> values(n, 60.0F), expected(n, 30.0F * std::tanh(1.0F));
      values[at] = expected[at] = nan;
      expect_close(capped(values, 30.0F), expected, 1e-5, 0, "with one NaN");
    }
  }
}

inline std::vector<double> nll_of(Backend& backend, const std::vector<float>& logits,
                                  const std::vector<int32_t>& targets, int64_t gap = 0) {
  const auto rows = static_cast<int64_t>(targets.size());
  const Tensor input(backend, logits, rows, static_cast<int64_t>(logits.size()) / rows, DType::kF32, gap);
  std::vector<double> nll(targets.size(), -1);
  backend.token_nll(input.view(), targets, nll);
  return nll;
}

// exp(x - max) is f32 (2e-7 with the rounding of x - max); the sum is double.
inline void check_token_nll(Backend& tested, Backend& reference, const RowCase& c, float scale = 4.0F) {
  Rng rng(17);
  const std::vector<float> logits = rng.normals(c.rows * c.cols, scale);
  std::vector<int32_t> targets(static_cast<size_t>(c.rows));
  for (int32_t& target : targets) target = static_cast<int32_t>(rng.next() % static_cast<uint64_t>(c.cols));
  const auto actual = nll_of(tested, logits, targets, c.gap), expected = nll_of(reference, logits, targets);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-6 + 1e-7 * std::abs(expected[i]));
  }
}

inline void check_token_nll_oddities(Backend& backend) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto one = [&](const std::vector<float>& row, int32_t t) { return nll_of(backend, row, {t})[0]; };
  EXPECT_NEAR(one({0, 0, 0, 0}, 3), std::log(4.0), 1e-7);
  EXPECT_NEAR(one({3e38F, 3e38F}, 0), std::log(2.0), 1);  // ln 2 vanishes next to 3e38
  EXPECT_NEAR(one({1000, 0, -1000}, 1), 1000.0, 1e-3);
  EXPECT_NEAR(one({-inf, 2, 2}, 1), std::log(2.0), 1e-7);  // a masked token
  EXPECT_EQ(one({-inf, 2, 2}, 0), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(one({-inf, -inf}, 0)));
  EXPECT_TRUE(std::isnan(one({inf, 0}, 1)));
  EXPECT_TRUE(std::isnan(one({nan, 0, 1}, 1)));
}

}  // namespace lariat::test
