#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Attention = CpuOp<AttentionCase>;
TEST_P(Attention, MatchesReference) { check_attention(cpu_, reference_, param()); }
TEST_P(Attention, SplitDoesNotMatter) { check_attention_chunks(cpu_, param()); }
LARIAT_ON_CPU(Attention, attention_cases());

TEST(AttentionLaws, OnlyDifferencesOfPositionsCount) {
  CpuBackend cpu(2);
  check_attention_is_relative(cpu);
  ReferenceBackend reference;
  check_attention_is_relative(reference);
}

}  // namespace
}  // namespace lariat::test
