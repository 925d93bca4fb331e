// Backend::gated of many tokens on the CUDA backend, in bf16 throughout, against the float64 reference, which
// rounds neither gate nor up. (Of few tokens, and in f32: project_test.cpp.)
#include "tests/cuda/gated_cases.h"

#include "tests/cuda/cuda_fixture.h"

namespace lariat::test {
namespace {

// Both products and the gate's activation of the reference, by element.
struct ExactUnit {
  std::vector<float> gate, up, activated, out;

  ExactUnit(Backend& reference, const GatedCase& c) {
    const GatedOperands of(reference, c);
    const auto [tokens, cols, rows] = c.shape;
    const Tensor g(reference, tokens, rows), u(reference, tokens, rows), result(reference, tokens, rows);
    const Product products[] = {{of.gate.w, {}, g.view()}, {of.up.w, {}, u.view()}};
    reference.project(of.x.view(), products, DType::kBF16);
    gate = g.values();
    up = u.values();
    reference.glu(g.view(), Matrix(), c.activation, result.view());
    activated = result.values();
    reference.glu(g.view(), u.view(), c.activation, result.view());
    out = result.values();
  }

  // How far element i may be off. A product is off by what its sum in f32 costs (tests/kernels/
  // matmul_cases.h; weights have a standard deviation of 0.2) and by what rounding it costs, half a unit in
  // the last of bf16's 8 bits. No activation is steeper than 1.13. Then the result is rounded, after some
  // units of f32 for exp or erf.
  double bound(size_t i, int64_t cols) const {
    const double sum = 8 * 0x1p-24 * 0.64 * 0.2 * static_cast<double>(cols + 2),
                 half = half_ulp(DType::kBF16);
    const double of_gate = half * (std::abs(gate[i]) + sum) + sum,
                 of_up = half * (std::abs(up[i]) + sum) + sum;
    const double error =
        1.13 * of_gate * (std::abs(up[i]) + of_up) + std::abs(activated[i]) * of_up + 1e-5 * std::abs(out[i]);
    return error + half * (std::abs(out[i]) + error);
  }
};

using CudaGated = OnCudaWith<GatedCase>;

// Gate and up exchanged, a row that lies elsewhere than it is read, or products that overwrite each other
// (kUpOnTheLeft, were their rows not as far apart in bf16 as in f32) are off by as much as an element is
// large, some hundred times the bound.
TEST_P(CudaGated, AsTheReferenceToBf16) {
  const GatedCase& c = GetParam();
  const ExactUnit exact(reference_, c);
  const std::vector<float> actual = GatedOperands(*cuda_, c).run(*cuda_, c.activation);
  ASSERT_EQ(actual.size(), exact.out.size());
  EXPECT_GT(largest_magnitude(actual), 0.1);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], exact.out[i], exact.bound(i, c.shape.cols))
        << "element " << i << ", gate " << exact.gate[i] << ", up " << exact.up[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaGated, testing::ValuesIn(gated_cases()));

}  // namespace
}  // namespace lariat::test
