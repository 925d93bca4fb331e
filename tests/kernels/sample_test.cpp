#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

class Sample : public testing::TestWithParam<SampleCase> {};
TEST_P(Sample, MatchesReference) {
  CpuBackend cpu(1);
  ReferenceBackend reference;
  check_sample(cpu, reference, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Cases, Sample, testing::ValuesIn(sample_cases()));

template <class Backend>
class SampleOddities : public testing::Test {
 protected:
  Backend backend_;
};
using Backends = testing::Types<CpuBackend, ReferenceBackend>;
TYPED_TEST_SUITE(SampleOddities, Backends);
TYPED_TEST(SampleOddities, Distribution) { check_sample_distribution(this->backend_); }
TYPED_TEST(SampleOddities, OddRows) { check_sample_oddities(this->backend_); }

}  // namespace
}  // namespace lariat::test
