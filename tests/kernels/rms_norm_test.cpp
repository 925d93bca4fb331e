#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using RmsNorm = CpuOp<RowCase>;
TEST_P(RmsNorm, MatchesReference) { check_rms_norm(cpu_, reference_, param()); }
LARIAT_ON_CPU(RmsNorm, row_cases());
TEST_P(RmsNorm, AddedMatchesReference) { check_add_rms_norm(cpu_, reference_, param()); }

// Activations of the size that some models' residual streams reach, and tiny ones where eps dominates.
TEST(RmsNormSizes, LargeAndSmall) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (float scale : {1e-8F, 1e4F, 1e12F}) check_rms_norm(cpu, reference, {2, 515}, scale);
}

}  // namespace
}  // namespace lariat::test
