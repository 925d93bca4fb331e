// step_test.cpp replays steps with another routing.
#include "kernels/error.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/experts_cases.h"

namespace lariat::test {
namespace {

constexpr DType kWeights[] = {DType::kF32, DType::kBF16, DType::kQ8, DType::kQ4};
DType compute_of(DType weights) { return weights == DType::kBF16 ? DType::kBF16 : DType::kF32; }

using CudaExperts = OnCuda;
TEST_F(CudaExperts, ReportsItsExpertLimit) {
  EXPECT_THROW(route_one(*cuda_, std::vector<float>(513), {.n_chosen = 2}), Error);
}
TEST_F(CudaExperts, NanReachesOnlyItsRow) {
  for (const DType weights : kWeights) check_grouped_linear_nan(*cuda_, weights, compute_of(weights));
}
TEST_F(CudaExperts, AddTheBiasesOfTheirBlock) {
  for (const DType weights : kWeights) check_grouped_biases(*cuda_, weights, compute_of(weights));
}
TEST_F(CudaExperts, MoreRowsThanAreScannedAtATime) {
  for (const DType weights : {DType::kF16, DType::kQ4})
    check_grouped_linear(*cuda_, reference_, weights, DType::kF32, {700, 3, 2, 9, 16});
}

using CudaExpertShapes = OnCudaWith<ExpertShape>;
TEST_P(CudaExpertShapes, MatchTheReference) {
  for (const DType weights : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      check_grouped_linear(*cuda_, reference_, weights, compute, GetParam());
    }
  }
  for (const DType weights : {DType::kQ8, DType::kQ4})
    check_grouped_linear(*cuda_, reference_, weights, DType::kF32, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaExpertShapes, testing::ValuesIn(expert_shapes()));

}  // namespace
}  // namespace lariat::test
