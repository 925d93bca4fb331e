// The ops that work row by row.
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Embed = CpuOp<RowCase>;
TEST_P(Embed, MatchesReference) { check_embed(cpu_, reference_, param()); }
TEST_P(Embed, ScaledMatchesReference) { check_embed(cpu_, reference_, param(), 45.25483F); }
LARIAT_ON_CPU(Embed, row_cases());

using NormOp = CpuOp<RowCase>;
TEST_P(NormOp, MatchesReference) {
  for (NormKind kind : kNormKinds) check_norm(cpu_, reference_, param(), kind);
}
TEST_P(NormOp, AddedMatchesReference) {
  for (NormKind kind : kNormKinds) {
    for (float scale : {1.0F, 0.22F}) check_add_norm(cpu_, reference_, param(), kind, scale);
  }
}
LARIAT_ON_CPU(NormOp, row_cases());

// Activations of the size that some models' residual streams reach, and tiny ones where eps dominates.
TEST(NormSizes, LargeAndSmall) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (float scale : {1e-8F, 1e4F, 1e12F}) {
    for (NormKind kind : kNormKinds) check_norm(cpu, reference, {2, 515}, kind, scale);
  }
}
TEST(NormSizes, LargeMean) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  check_norm_large_mean(cpu, reference);
}

using Glu = CpuOp<RowCase>;
TEST_P(Glu, MatchesReference) { check_glu(cpu_, reference_, param()); }
LARIAT_ON_CPU(Glu, row_cases());

TEST(GluSizes, LargeAndSmall) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (float scale : {1e-20F, 40.0F, 1e4F}) check_glu(cpu, reference, {2, 515}, scale);
}
TEST(GluSizes, GeluEverywhere) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  check_gelu_range(cpu, reference);
}

using SoftCap = CpuOp<RowCase>;
TEST_P(SoftCap, MatchesReference) {
  check_soft_cap(cpu_, reference_, param(), 0.125F, 0.0F);
  check_soft_cap(cpu_, reference_, param(), 1.0F, 30.0F);
}
LARIAT_ON_CPU(SoftCap, row_cases());

TEST(SoftCapOddities, Cpu) {
  CpuBackend cpu(1);
  check_soft_cap_oddities(cpu);
}
TEST(SoftCapOddities, Reference) {
  ReferenceBackend reference;
  check_soft_cap_oddities(reference);
}

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
