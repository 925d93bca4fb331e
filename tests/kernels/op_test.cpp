#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_tests.h"

namespace lariat::test {
namespace {

using CpuOps = CpuOp<OpTest>;
TEST_P(CpuOps, EqualTheReference) { param().run(cpu_, reference_); }
INSTANTIATE_TEST_SUITE_P(All, CpuOps, testing::Combine(testing::Values(1, 2), testing::ValuesIn(op_tests())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "_on_" +
                                  std::to_string(std::get<0>(test.param));
                         });

class ReferenceOps : public testing::TestWithParam<OpTest> {};
TEST_P(ReferenceOps, KeepTheLaws) {
  ReferenceBackend reference;
  GetParam().run(reference, reference);
}
INSTANTIATE_TEST_SUITE_P(All, ReferenceOps, testing::ValuesIn(op_laws()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lariat::test
