// Own kernels for few tokens, cuBLAS for many, and every epilogue, vs the float64 reference.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {
namespace {

struct CudaLinear : OnCudaWith<LinearCase> {
  void check(const LinearShape& shape, int64_t gap = 0, bool bias = false) {
    check_linear(*cuda_, reference_, GetParam(), shape, gap, bias);
  }
};

TEST_P(CudaLinear, FewTokens) {
  for (int64_t tokens : {1, 2, 4, 5, 8, 9, 16}) {
    for (auto [rows, cols] :
         {std::pair{1, 1}, {3, 8}, {2, 257}, {5, 256}, {17, 1024}, {200, 72}, {33, 4104}, {530, 40}}) {
      check({tokens, rows, cols});
    }
  }
}

TEST_P(CudaLinear, ManyTokens) {
  for (const LinearShape& shape : {LinearShape{9, 5, 3}, {17, 64, 72}, {130, 31, 40}}) check(shape);
}

TEST_P(CudaLinear, StridesAndBias) {
  for (int64_t tokens : {1, 3, 8, 12, 18}) {
    for (int64_t gap : {3, 8}) check({tokens, 19, 136}, gap, true);  // 8 keeps rows aligned
  }
}

TEST_P(CudaLinear, DoesNotDependOnChunks) { check_linear_splits(*cuda_, GetParam()); }

INSTANTIATE_TEST_SUITE_P(DTypes, CudaLinear, testing::ValuesIn(linear_cases()));

// Rows that are no multiple of a tile, too few for a block, or enough for two tiles; columns in whole batches
// and not; rows unaligned by length or gap.
using CudaEpilogue = OnCudaWith<EpilogueCase>;
TEST_P(CudaEpilogue, MatchesTheReference) {
  const EpilogueCase& c = GetParam();
  const bool quantized = std::any_of(c.weights.begin(), c.weights.end(), is_quantized);
  for (const int64_t tokens : {1, 2, 5, 8, 9, 16, 17, 40}) {
    if (quantized && tokens > 16) continue;
    check_epilogue(*cuda_, reference_, c, {tokens, 72, 33});
    check_epilogue(*cuda_, reference_, c, {tokens, 67, 19, 3});
    if (tokens % 8 == 1) check_epilogue(*cuda_, reference_, c, {tokens, 1288, 16, 8});
    if (tokens == 5) check_epilogue(*cuda_, reference_, c, {tokens, 136, 400});
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaEpilogue, testing::ValuesIn(epilogue_cases({DType::kF32, DType::kBF16})));

// Blocks of a layer are one product of many tokens.
TEST_F(OnCuda, InputsAreStoredInTheProductsDtype) {
  const std::vector<float> zeros(size_t{8} * 8);
  const auto input = [&](std::vector<DType> dtypes, DType compute) {
    const std::vector<HostWeight> hosts(dtypes.size(),
                                        Matrix(const_cast<float*>(zeros.data()), DType::kF32, 8, 8));
    const std::vector<WeightFormat> formats(dtypes.begin(), dtypes.end());
    return cuda_->load_weight(hosts, formats, compute).weight.input;
  };
  constexpr DType f32 = DType::kF32, bf16 = DType::kBF16;
  EXPECT_EQ(input({bf16, bf16}, bf16), bf16);
  EXPECT_EQ(input({bf16, DType::kF16}, bf16), f32);
  EXPECT_EQ(input({bf16}, f32), f32);
  EXPECT_EQ(input({DType::kQ8}, f32), f32);
}

}  // namespace
}  // namespace lariat::test
