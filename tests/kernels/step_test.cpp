#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Step = CpuOp<StepCase>;
TEST_P(Step, MatchesReference) { check_step_attention(cpu_, reference_, param(), cpu_attention_tolerance); }
TEST_P(Step, RerotationMatchesReference) { check_step_rerotation(cpu_, reference_, param()); }
TEST_P(Step, SequencesAreAsTheyAreAlone) { check_step_alone(cpu_, param()); }
LARIAT_ON_CPU(Step, step_cases());

TEST(StepThreads, ManyThreads) {
  CpuBackend cpu(5);
  ReferenceBackend reference;
  for (const StepCase& c : step_cases()) {
    check_step_attention(cpu, reference, c, cpu_attention_tolerance);
    check_step_alone(cpu, c);
    check_step_rerotation(cpu, reference, c);
  }
}

}  // namespace
}  // namespace lariat::test
