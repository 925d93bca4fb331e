#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Draw = CpuOp<DrawCase>;
TEST_P(Draw, MatchesReference) { check_draw(cpu_, reference_, param()); }
LARIAT_ON_CPU(Draw, draw_cases());

template <class Backend>
class DrawOddities : public testing::Test {
 protected:
  Backend backend_;
};
using Backends = testing::Types<CpuBackend, ReferenceBackend>;
TYPED_TEST_SUITE(DrawOddities, Backends);
TYPED_TEST(DrawOddities, Distribution) { check_draw_distribution(this->backend_); }
TYPED_TEST(DrawOddities, OddRows) { check_draw_oddities(this->backend_); }
TYPED_TEST(DrawOddities, EmbedOfDrawn) { check_embed_of_drawn(this->backend_); }

}  // namespace
}  // namespace lariat::test
