#pragma once
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace lariat::test {

// A case of a table on the CPU backend with one thread and with two.
template <class Case>
class CpuOp : public testing::TestWithParam<std::tuple<int, Case>> {
 protected:
  const Case& param() const { return std::get<1>(this->GetParam()); }
  CpuBackend cpu_{std::get<0>(this->GetParam())};
  ReferenceBackend reference_;
};

}  // namespace lariat::test

#define LARIAT_ON_CPU(fixture, cases) \
  INSTANTIATE_TEST_SUITE_P(Cpu, fixture, testing::Combine(testing::Values(1, 2), testing::ValuesIn(cases)))
