// Backend::linear with quantised weights on the CUDA backend: the same integers as the float64 reference for
// a few tokens, bf16 products of the same weights for many.
#include "kernels/quant.h"
#include "kernels/convert.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/tensors.h"

namespace lariat::test {
namespace {

struct QuantShape {
  int64_t tokens, rows, cols;
};

struct CudaQuant : OnCudaWith<DType> {
  static std::vector<float> weights(const QuantShape& s) { return Rng(37).normals(s.rows * s.cols); }
  static std::vector<float> inputs(const QuantShape& s) { return Rng(41).normals(s.tokens * s.cols); }

  std::vector<float> run(Backend& backend, const QuantShape& s, bool biased = false) {
    std::vector<float> values = weights(s);
    const Loaded w = load_one(backend, Matrix(values.data(), DType::kF32, s.rows, s.cols), GetParam());
    const Tensor x(backend, inputs(s), s.tokens, s.cols, DType::kF32);
    const Tensor bias(backend, Rng(43).normals(s.rows), 1, s.rows, DType::kBF16);
    const Tensor out(backend, s.tokens, s.rows);
    multiply(backend, x.view(), w.matrix, biased ? bias.view() : Matrix(), DType::kF32, out.view());
    return out.values();
  }

  // The float product of the weights that the integers stand for, both rounded to bf16.
  std::vector<float> rounded_product(const QuantShape& s) {
    std::vector<float> values = weights(s), x = inputs(s);
    Loaded w = load_one(reference_, Matrix(values.data(), DType::kF32, s.rows, s.cols), GetParam());
    for (int64_t i = 0; i < s.rows * s.cols; ++i) {
      values[static_cast<size_t>(i)] = round_to_bf16(dequantized(w.matrix, i / s.cols, i % s.cols));
    }
    for (float& value : x) value = round_to_bf16(value);
    const Tensor out(reference_, s.tokens, s.rows);
    multiply(reference_, Matrix(x.data(), DType::kF32, s.tokens, s.cols),
             Matrix(values.data(), DType::kF32, s.rows, s.cols), {}, DType::kF32, out.view());
    return out.values();
  }

  // Sums of `cols` products of normals in f32, as for floats; rounding in another order is all that differs.
  static double tolerance(const QuantShape& s) {
    return 8 * 0x1p-24 * 0.64 * static_cast<double>(s.cols + 2);
  }
};

TEST_P(CudaQuant, FewTokensAreTheSameIntegers) {
  for (int64_t tokens : {1, 2, 4, 5, 8, 9, 16}) {
    for (auto [rows, cols] :
         {std::pair{1, 1}, {3, 8}, {2, 257}, {5, 256}, {16, 64}, {17, 1024}, {200, 72}, {33, 4104}}) {
      const QuantShape s = {tokens, rows, cols};
      expect_close(run(*cuda_, s), run(reference_, s), tolerance(s), 0,
                   std::to_string(tokens) + " x " + std::to_string(rows) + " x " + std::to_string(cols));
    }
  }
}

TEST_P(CudaQuant, ManyTokensAreABf16ProductOfTheSameWeights) {
  for (auto [tokens, rows, cols] : {std::tuple{17, 5, 3}, {18, 64, 72}, {130, 31, 40}, {20, 40, 320}}) {
    const QuantShape s = {tokens, rows, cols};
    expect_close(run(*cuda_, s), rounded_product(s), tolerance(s), 0, "many tokens");
  }
}

TEST_P(CudaQuant, Bias) {
  for (const QuantShape& few : {QuantShape{3, 19, 136}, {7, 19, 136}, {11, 19, 136}}) {
    expect_close(run(*cuda_, few, true), run(reference_, few, true), tolerance(few), 0, "few");
  }
  const QuantShape many = {20, 19, 136};
  const std::vector<float> with = run(*cuda_, many, true), without = run(*cuda_, many);
  const std::vector<float> bias = Rng(43).normals(many.rows);
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_NEAR(with[i] - without[i], round_to_bf16(bias[i % bias.size()]), 1e-5) << i;
  }
}

// What is not finite stays visible: a NaN in a group of x or of w reaches the outputs that it is part of.
TEST_P(CudaQuant, NotFinite) {
  std::vector<float> x(96, 1.0F), w(size_t{2} * 96, 1.0F);
  x[40] = INFINITY;
  w[96 + 5] = NAN;
  const Loaded weight = load_one(*cuda_, Matrix(w.data(), DType::kF32, 2, 96), GetParam());
  const Tensor bad(*cuda_, x, 1, 96, DType::kF32),
      good(*cuda_, std::vector<float>(96, 1.0F), 1, 96, DType::kF32);
  const Tensor out(*cuda_, 1, 2);
  multiply(*cuda_, bad.view(), weight.matrix, {}, DType::kF32, out.view());
  EXPECT_TRUE(std::isnan(out.values()[0]) && std::isnan(out.values()[1]));
  multiply(*cuda_, good.view(), weight.matrix, {}, DType::kF32, out.view());
  EXPECT_TRUE(std::isfinite(out.values()[0]) && std::isnan(out.values()[1]));
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaQuant, testing::Values(DType::kQ8, DType::kQ4),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace lariat::test
