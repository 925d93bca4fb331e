// The ops that rotate keys.
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

TEST(RopeTableAxes, Cpu) {
  CpuBackend one(1), two(2);
  check_rope_table_axes(one);
  check_rope_table_axes(two);
}
TEST(RopeTableAxes, Reference) {
  ReferenceBackend reference;
  check_rope_table_axes(reference);
}

using QkvToCache = CpuOp<QkvCase>;
TEST_P(QkvToCache, MatchesReference) { check_qkv_to_cache(cpu_, reference_, param()); }
LARIAT_ON_CPU(QkvToCache, qkv_cases());

TEST(QkvClip, KeepsNaN) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&reference)})
    check_clip_keeps_nan(*backend);
}

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
