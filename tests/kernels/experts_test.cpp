#include "kernels/error.h"
#include "tests/bits_of_rows.h"
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/experts_cases.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {
namespace {

TEST(CpuRoute, ReportsItsExpertLimit) {
  CpuBackend cpu(1);
  EXPECT_THROW(route_one(cpu, std::vector<float>(513), {.n_chosen = 2}), Error);
}

struct ExpertDTypes {
  DType weights, compute;
};

void PrintTo(const ExpertDTypes& c, std::ostream* out) {
  *out << name_of(c.weights) << " weights, computed in " << name_of(c.compute);
}

std::vector<ExpertDTypes> expert_dtypes() {
  std::vector<ExpertDTypes> all = {{DType::kQ8, DType::kF32}, {DType::kQ4, DType::kBF16}};
  for (const LinearCase& c : linear_cases()) all.push_back({c.weights, c.compute});
  return all;
}

class GroupedLinear : public CpuOp<ExpertDTypes> {
 protected:
  ExpertProblem problem(const ExpertShape& shape) const { return {param().weights, param().compute, shape}; }
};

TEST_P(GroupedLinear, MatchesReference) {
  for (const ExpertShape& s : expert_shapes()) {
    check_grouped_linear(cpu_, reference_, param().weights, param().compute, s);
  }
}

TEST_P(GroupedLinear, AddsTheBiasesOfItsBlock) {
  check_grouped_biases(cpu_, param().weights, param().compute);
}

TEST_P(GroupedLinear, NanReachesOnlyItsRow) {
  check_grouped_linear_nan(cpu_, param().weights, param().compute);
}

// Holds in steps of few tokens, and always with quantized weights (docs/accuracy.md).
TEST_P(GroupedLinear, GivesTheBitsOfAProductOfOneRow) {
  const bool any = has_tiles(param().weights, param().compute) ||
                   grouped_linear_rows_alike(is_quantized(param().weights)) > 60 * 2;
  for (const ExpertShape& s :
       {ExpertShape{8, 9, 3, 130, 515}, {8, 9, 3, 130, 515, false}, {any ? 60 : 8, 4, 2, 700, 1000}}) {
    const ExpertProblem all = problem(s);
    const std::vector<float> together = all.run(cpu_);
    std::vector<Tensor> hosts;
    const std::vector<Loaded> experts = all.load(cpu_, hosts);
    for (int64_t row = 0; row < s.tokens * s.n_chosen; ++row) {
      const auto x = all.x.begin() + all.x_row(row) * s.k;
      const Tensor one(cpu_, {x, x + s.k}, 1, s.k), out(cpu_, 1, s.n);
      const Matrix& w = experts[static_cast<size_t>(all.chosen[static_cast<size_t>(row)])].matrix;
      multiply(cpu_, one.view(), w, {}, all.compute, out.view());
      const auto begin = together.begin() + row * s.n;
      ASSERT_EQ(out.values(), std::vector<float>(begin, begin + s.n)) << row;
    }
  }
}

// Threads split outputs, never a sum.
TEST_P(GroupedLinear, ThreadsDoNotChangeABit) {
  CpuBackend one(1), five(5);
  for (const int64_t tokens : {1, 6, 40}) {
    const ExpertProblem all = problem({tokens, 8, 5, 300, 1024});
    const std::vector<float> expected = all.run(one);
    EXPECT_EQ(all.run(cpu_), expected);
    EXPECT_EQ(all.run(five), expected);
  }
}
LARIAT_ON_CPU(GroupedLinear, expert_dtypes());

TEST(CpuGroupedLinear, ReadsOnlyTheChosenExperts) {
  CpuBackend cpu(2);
  const ExpertProblem all(DType::kF32, DType::kF32, {1, 16, 4, 24, 64});
  const Tensor w(cpu, Rng(5).normals(24 * 64), 24, 64), x(cpu, all.x, 1, 64), out(cpu, 4, 24);
  Weight experts{std::vector<RowBlock>(16, {Matrix(nullptr, DType::kF32, 24, 64), {}})};
  for (const int32_t e : all.chosen) experts.blocks[static_cast<size_t>(e)].w = w.view();
  const Routed routed(cpu, all.chosen, {1, 1, 1, 1}, 1);
  cpu.grouped_linear(x.view(), experts, routed.view(), out.view());
  for (const float value : out.values()) EXPECT_TRUE(std::isfinite(value));
}

// Many rows use gemm, few gemv.
TEST(CpuGroupedLinear, ChoosesTheKernelByTheExpertsRows) {
  CpuBackend cpu(2);
  ExpertProblem all(DType::kBF16, DType::kBF16, {20, 4, 1, 24, 64});
  for (size_t t = 0; t < 20; ++t) all.chosen[t] = t < 8 ? 0 : t < 17 ? 1 : 3;  // 8, 9, 0, 3 rows
  all.run(cpu);
  EXPECT_EQ(cpu.paths().gemv, 2);
  EXPECT_EQ(cpu.paths().gemm, 1);
}

}  // namespace
}  // namespace lariat::test
