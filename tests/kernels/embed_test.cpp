#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Embed = CpuOp<RowCase>;
TEST_P(Embed, MatchesReference) { check_embed(cpu_, reference_, param()); }
LARIAT_ON_CPU(Embed, row_cases());

}  // namespace
}  // namespace lariat::test
