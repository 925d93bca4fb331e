// Products of few tokens equal the float64 reference's integers; many use bf16.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {
namespace {

struct CudaQuant : OnCudaWith<DType> {
  LinearCase dtypes() const { return {GetParam(), DType::kF32}; }
};

TEST_P(CudaQuant, FewTokensAreTheSameIntegers) {
  for (int64_t tokens : {1, 2, 4, 5, 8, 9, 16}) {
    for (auto [rows, cols] :
         {std::pair{1, 1}, {3, 8}, {2, 257}, {5, 256}, {16, 64}, {17, 1024}, {200, 72}, {33, 4104}}) {
      check_linear(*cuda_, reference_, dtypes(), {tokens, rows, cols});
    }
  }
}

TEST_P(CudaQuant, ManyTokensAreABf16ProductOfTheSameWeights) {
  for (const LinearShape& shape : {LinearShape{17, 5, 3}, {18, 64, 72}, {130, 31, 40}, {20, 40, 320}}) {
    for (const bool bias : {false, true}) {
      const LinearProblem problem(dtypes(), shape, bias);
      EXPECT_LE(problem.in_bf16().worst_error(reference_, problem.run(*cuda_)), 1.0) << shape.m << " tokens";
    }
  }
}

TEST_P(CudaQuant, Bias) {
  for (const int64_t tokens : {3, 7, 11}) {
    check_linear(*cuda_, reference_, dtypes(), {tokens, 19, 136}, 0, true);
  }
}

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
