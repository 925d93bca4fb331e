#pragma once
#include <gtest/gtest.h>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/attention_cases.h"

namespace lariat::test {

// A table case with one and two threads.
template <class Case>
class CpuOp : public testing::TestWithParam<std::tuple<int, Case>> {
 protected:
  const Case& param() const { return std::get<1>(this->GetParam()); }
  CpuBackend cpu_{std::get<0>(this->GetParam())};
  ReferenceBackend reference_;
};

// Tiled blocks round operands to bf16 (narrow bounds: attention_tiles_test.cpp). Products and scores of
// normals are off by some 2^-9, six times that in a weight, plus its rounding (2^-8), for values up to 4.
inline double cpu_attention_tolerance(const AttentionCase& c) {
  const KvLayer layer{1, 32, c.k_dtype, c.v_dtype};  // tiles support this shape
  const bool rounded = cpu::has_tiled_attention(layer);
  return attention_tolerance(c) + (rounded ? 4 * (6 * 0x1p-9 + 0x1p-8) : 0);
}

}  // namespace lariat::test

#define LARIAT_ON_CPU(fixture, cases) \
  INSTANTIATE_TEST_SUITE_P(Cpu, fixture, testing::Combine(testing::Values(1, 2), testing::ValuesIn(cases)))
