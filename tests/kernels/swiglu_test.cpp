#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Swiglu = CpuOp<RowCase>;
TEST_P(Swiglu, MatchesReference) { check_swiglu(cpu_, reference_, param()); }
LARIAT_ON_CPU(Swiglu, row_cases());

TEST(SwigluSizes, LargeAndSmall) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (float scale : {1e-20F, 40.0F, 1e4F}) check_swiglu(cpu, reference, {2, 515}, scale);
}

}  // namespace
}  // namespace lariat::test
