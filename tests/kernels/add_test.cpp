#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Add = CpuOp<RowCase>;
TEST_P(Add, MatchesReference) { check_add(cpu_, reference_, param()); }
LARIAT_ON_CPU(Add, row_cases());

}  // namespace
}  // namespace lariat::test
