#pragma once
#include <gtest/gtest.h>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/attention_cases.h"

namespace lariat::test {

// A case of a table on the CPU backend with one thread and with two.
template <class Case>
class CpuOp : public testing::TestWithParam<std::tuple<int, Case>> {
 protected:
  const Case& param() const { return std::get<1>(this->GetParam()); }
  CpuBackend cpu_{std::get<0>(this->GetParam())};
  ReferenceBackend reference_;
};

// Where blocks go through tiles (attention_tiles_test.cpp has the narrow bounds) a product of normal values
// that are each rounded to bf16 is off by some 2^-9 of itself, and so is a score, a sum of them over its
// root; six times that as a weight's share of values of up to 4, beside the weight's own rounding (2^-8).
inline double cpu_attention_tolerance(const AttentionCase& c) {
  const KvLayer layer{1, 32, c.k_dtype, c.v_dtype};  // of a shape that tiles take
  const bool rounded = cpu::has_tiled_attention(layer);
  return attention_tolerance(c) + (rounded ? 4 * (6 * 0x1p-9 + 0x1p-8) : 0);
}

}  // namespace lariat::test

#define LARIAT_ON_CPU(fixture, cases) \
  INSTANTIATE_TEST_SUITE_P(Cpu, fixture, testing::Combine(testing::Values(1, 2), testing::ValuesIn(cases)))
