// The products of experts on the CUDA backend. (step_test.cpp has steps that are recorded with one routing
// and replayed with others.)
#include "kernels/error.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/experts_cases.h"

namespace lariat::test {
namespace {

using CudaExperts = OnCuda;
TEST_F(CudaExperts, SaysHowManyExpertsItCanHave) {
  EXPECT_THROW(route_one(*cuda_, std::vector<float>(513), {.n_chosen = 2}), Error);
}
TEST_F(CudaExperts, NanReachesItsRowAndNothingElse) {
  check_grouped_linear_nan(*cuda_, DType::kF32, DType::kF32);
  check_grouped_linear_nan(*cuda_, DType::kBF16, DType::kBF16);
}
TEST_F(CudaExperts, AddTheBiasesOfTheirBlock) {
  check_grouped_biases(*cuda_, DType::kF32, DType::kF32);
  check_grouped_biases(*cuda_, DType::kBF16, DType::kBF16);
}
TEST_F(CudaExperts, MoreRowsThanAreLookedThroughAtATime) {
  check_grouped_linear(*cuda_, reference_, DType::kF16, DType::kF32, {700, 3, 2, 9, 16});
}

using CudaExpertShapes = OnCudaWith<ExpertShape>;
TEST_P(CudaExpertShapes, MatchTheReference) {
  for (const DType weights : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      check_grouped_linear(*cuda_, reference_, weights, compute, GetParam());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaExpertShapes, testing::ValuesIn(expert_shapes()));

}  // namespace
}  // namespace lariat::test
