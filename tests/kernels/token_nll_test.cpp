#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using TokenNll = CpuOp<RowCase>;
TEST_P(TokenNll, MatchesReference) { check_token_nll(cpu_, reference_, param()); }
LARIAT_ON_CPU(TokenNll, row_cases());

TEST(TokenNllSizes, LargeAndSmall) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (float scale : {0.0F, 1e-3F, 30.0F}) check_token_nll(cpu, reference, {2, 515}, scale);
}
TEST(TokenNllOddities, Cpu) {
  CpuBackend cpu(1);
  check_token_nll_oddities(cpu);
}
TEST(TokenNllOddities, Reference) {
  ReferenceBackend reference;
  check_token_nll_oddities(reference);
}

}  // namespace
}  // namespace lariat::test
