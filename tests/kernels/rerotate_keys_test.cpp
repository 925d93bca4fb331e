#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using RerotateKeys = CpuOp<RerotateCase>;
TEST_P(RerotateKeys, MatchesReference) { check_rerotate_keys(cpu_, reference_, param()); }
LARIAT_ON_CPU(RerotateKeys, rerotate_cases());

template <class B>
void check_laws(B& backend) {
  for (bool interleaved : {false, true}) {
    check_composition(backend, interleaved, 64);
    check_composition(backend, interleaved, 24);
    check_isometry(backend, interleaved);
  }
}

TEST(RerotateLaws, Cpu) {
  CpuBackend cpu(2);
  check_laws(cpu);
}
TEST(RerotateLaws, Reference) {
  ReferenceBackend reference;
  check_laws(reference);
}

}  // namespace
}  // namespace lariat::test
