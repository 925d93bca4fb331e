#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using RopeTableOp = CpuOp<RopeTableCase>;
TEST_P(RopeTableOp, IsExact) { check_rope_table(cpu_, param()); }
TEST_P(RopeTableOp, ReferenceIsExact) { check_rope_table(reference_, param()); }
LARIAT_ON_CPU(RopeTableOp, rope_table_cases());

TEST(RopeTableSplit, DoesNotMatter) {
  CpuBackend one(1), two(2);
  check_rope_table_split(one);
  check_rope_table_split(two);
}

}  // namespace
}  // namespace lariat::test
