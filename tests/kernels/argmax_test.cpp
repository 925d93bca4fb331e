#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Argmax = CpuOp<RowCase>;
TEST_P(Argmax, MatchesReference) { check_argmax(cpu_, reference_, param()); }
LARIAT_ON_CPU(Argmax, row_cases());

TEST(ArgmaxOddities, Cpu) {
  CpuBackend cpu(1);
  check_argmax_oddities(cpu);
}
TEST(ArgmaxOddities, Reference) {
  ReferenceBackend reference;
  check_argmax_oddities(reference);
}

}  // namespace
}  // namespace lariat::test
