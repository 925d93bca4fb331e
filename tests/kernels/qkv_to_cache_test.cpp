#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using QkvToCache = CpuOp<QkvCase>;
TEST_P(QkvToCache, MatchesReference) { check_qkv_to_cache(cpu_, reference_, param()); }
LARIAT_ON_CPU(QkvToCache, qkv_cases());

}  // namespace
}  // namespace lariat::test
