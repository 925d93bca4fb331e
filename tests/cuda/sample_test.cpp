// Draws on the CUDA backend that are spread over many blocks, or that need more than one launch. Those of all
// backends are in ops_test.cpp.
#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

class CudaDraw : public OnCuda {
 protected:
  void check(const std::vector<float>& row, const Sampling& how, const std::vector<double>& uniforms) {
    expect_same_draws(*cuda_, reference_, row, how, uniforms);
  }
};

TEST_F(CudaDraw, MoreRowsThanALaunchHolds) {
  Rng rng(21);
  std::vector<double> uniforms(40);
  for (double& u : uniforms) u = rng.uniform();
  check(rng.normals(37, 2.0F), {1.0F, 0, 0.9F, 0.0F}, uniforms);
}

// All in one bin: only the ids say which token comes first.
TEST_F(CudaDraw, ManyEqualLogits) {
  const std::vector<float> row(20000, 1.5F);
  check(row, {1.0F, 12345, 1.0F, 0.0F}, {0.0, 0.5, 1 - 0x1p-53});
  check(row, {0.7F, 0, 0.25F, 1.0F}, {0.37});
}

// Two values a hair apart share a bin with thousands of others on either side of zero.
TEST_F(CudaDraw, NeighbouringLogits) {
  std::vector<float> row;
  for (int i = 0; i < 9000; ++i) row.push_back(static_cast<float>(i * 7919 % 9000 - 4500) * 1e-9F);
  check(row, {1.0F, 4500, 1.0F, 0.0F}, {0.2, 0.9999});
  check(row, {1.0F, 4501, 0.999F, 0.0F}, {0.9999999});
}

TEST_F(CudaDraw, LargeVocabulary) {
  Rng rng(22);
  const std::vector<float> row = rng.normals(131072, 3.0F);
  check(row, {1.0F, 0, 1.0F, 0.0F}, {0.999});
  check(row, {0.8F, 1000, 0.95F, 0.001F}, {0.6});
}

}  // namespace
}  // namespace lariat::test
