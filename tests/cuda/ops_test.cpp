#include "tests/cuda/cuda_fixture.h"
#include "tests/kernels/op_tests.h"

namespace lariat::test {
namespace {

using CudaOps = OnCudaWith<OpTest>;
TEST_P(CudaOps, EqualTheReference) { GetParam().run(*cuda_, reference_); }
INSTANTIATE_TEST_SUITE_P(All, CudaOps, testing::ValuesIn(op_tests()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lariat::test
