#include "kernels/error.h"
#include "tests/bits_of_rows.h"
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {
namespace {

using Linear = CpuOp<LinearCase>;
TEST_P(Linear, MatchesReference) { check_linear_shapes(cpu_, reference_, param()); }
TEST_P(Linear, HonoursStridesAndBias) { check_linear_strides_and_bias(cpu_, reference_, param()); }
TEST_P(Linear, DoesNotDependOnHowRowsAreSplit) { check_linear_splits(cpu_, param()); }
TEST_P(Linear, NanReachesOnlyItsRow) { check_linear_nan(cpu_, param()); }
LARIAT_ON_CPU(Linear, linear_cases());

std::vector<LinearCase> all_linear_cases() {
  std::vector<LinearCase> cases = linear_cases();
  for (const DType quantised : {DType::kQ8, DType::kQ4}) cases.push_back({quantised, DType::kF32});
  return cases;
}

// Threads split the rows of w, never a sum.
TEST(CpuLinear, ThreadsDoNotChangeABit) {
  CpuBackend one(1), two(2), five(5);
  for (const LinearCase& c : all_linear_cases()) {
    for (int64_t m : {1, 6, 70}) {
      const LinearProblem problem(c, {m, 101, 300}, true);
      const std::vector<float> expected = problem.run(one);
      EXPECT_EQ(problem.run(two), expected);
      EXPECT_EQ(problem.run(five), expected);
    }
  }
}

// Rows equal single rows up to a row count, and other large chunks beyond it. 3073 columns are summed in
// several blocks.
TEST(CpuLinear, RowsHaveTheBitsOfOneUpToSoMany) {
  CpuBackend cpu(2);
  for (const LinearCase& c : all_linear_cases()) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{101, 515}, {37, 3073}}) {
      SCOPED_TRACE(testing::PrintToString(c));
      const LinearProblem problem(c, {70, n, k}, true);
      const std::vector<float> many = problem.run(cpu);
      std::vector<float> alone;
      for (int64_t row = 0; row < 70; ++row) {
        const std::vector<float> one = problem.run(cpu, row, 1);
        alone.insert(alone.end(), one.begin(), one.end());
      }
      const int64_t alike =
          has_tiles(c.weights, c.compute) ? kAnyRows : linear_rows_alike(is_quantized(c.weights));
      for (int64_t first = 0, count = 1; first < 70;
           first += count, count = std::min(count + 1, 70 - first)) {
        const auto begin = (count > alike ? many : alone).begin() + first * n;
        EXPECT_EQ(problem.run(cpu, first, count), std::vector<float>(begin, begin + count * n)) << count;
      }
      EXPECT_EQ(many == alone, alike >= 70);
    }
  }
}

TEST(CpuLinear, MoreRowsThanOneBlock) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  check_linear(cpu, reference, {DType::kBF16, DType::kBF16}, {1100, 13, 70});
  check_linear(cpu, reference, {DType::kF16, DType::kF32}, {1100, 13, 70});
}

using LinearEpilogue = CpuOp<EpilogueCase>;
TEST_P(LinearEpilogue, MatchesReference) {
  for (const int64_t tokens : {1, 3, 8, 9, 40}) {
    // Many rows of quantized weights may be a bf16 product, as in the bf16 cases.
    if (std::ranges::any_of(param().weights,
                            [&](DType w) { return is_quantized(w) && tokens > linear_rows_alike(true); }))
      continue;
    for (const EpilogueShape& s : {EpilogueShape{tokens, 72, 33}, {tokens, 67, 19, 3}, {tokens, 515, 130}}) {
      check_epilogue(cpu_, reference_, param(), s);
    }
  }
}
LARIAT_ON_CPU(LinearEpilogue, epilogue_cases({DType::kF32}));

TEST(CpuBlocks, EqualSeparateProductsBitwise) {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, q8 = DType::kQ8, q4 = DType::kQ4;
  for (const std::vector<DType>& dtypes : {std::vector<DType>{f32, f32, f32},
                                           {f16, f16, f16},
                                           {bf16, bf16, bf16},
                                           {q8, q8, q8},
                                           {q4, q4, q4},
                                           {q8, q4, f32},
                                           {bf16, f16, bf16}}) {
    for (const int threads : {1, 2, 5}) {
      CpuBackend cpu(threads);
      for (const int64_t m : {1, 3, 8, 9, 40}) {
        for (const int64_t k : {31, 512, 1030}) {
          const Tensor x(cpu, Rng(3).normals(m * k), m, k, f32, 2);
          std::vector<Tensor> hosts;
          std::vector<Loaded> loaded;
          Weight weight{{}, m % 2 == 0 ? bf16 : f32};
          for (size_t i = 0; i < dtypes.size(); ++i) {
            const int64_t n = i == 0 ? 70 : i == 1 ? 1 : 150;
            hosts.emplace_back(cpu, Rng(i + 5).normals(n * k), n, k,
                               is_quantized(dtypes[i]) ? f32 : dtypes[i]);
            loaded.push_back(load_one(cpu, hosts.back().view(), dtypes[i]));
            weight.blocks.push_back({loaded.back().matrix, {}});
          }
          const Tensor together(cpu, m, weight.rows(), 1), apart(cpu, m, weight.rows(), 1);
          cpu.linear(x.view(), weight, {}, together.view());
          int64_t column = 0;
          for (const RowBlock& block : weight.blocks) {
            cpu.linear(x.view(), {{block}, weight.compute}, {},
                       apart.view().column_range(column, block.w.rows));
            column += block.w.rows;
          }
          ASSERT_EQ(together.values(), apart.values()) << threads << " threads, m " << m << " k " << k;
        }
      }
    }
  }
}

// Prefill never runs at decode speed.
TEST(CpuBlocks, ManyRowsAreMultipliedInBlocks) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      CpuBackend cpu(2);
      const Tensor host(cpu, Rng(1).normals(33 * 64), 33, 64);
      const Loaded w = load_one(cpu, host.view(), dtype);
      const auto run = [&](int64_t m) {
        const Tensor x(cpu, Rng(3).normals(m * 64), m, 64), out(cpu, m, 33);
        multiply(cpu, x.view(), w.matrix, {}, compute, out.view());
      };
      for (const int64_t m : {9, 40, 600}) run(m);
      EXPECT_EQ(cpu.paths().gemm, 3) << name_of(dtype) << " weights, computed in " << name_of(compute);
      EXPECT_EQ(cpu.paths().gemv, 0);
      run(1);
      EXPECT_EQ(cpu.paths().gemv, 1);
    }
  }
}
TEST(CpuBlocks, EmptyProductsDoNothing) {
  CpuBackend cpu(2);
  const Tensor x(cpu, {}, 0, 64), w(cpu, Rng(1).normals(64), 1, 64), out(cpu, 0, 1), none(cpu, {}, 0, 64);
  multiply(cpu, x.view(), w.view(), {}, DType::kF32, out.view());
  const Tensor rows(cpu, Rng(2).normals(20 * 64), 20, 64), empty(cpu, 20, 0, 1);
  multiply(cpu, rows.view(), none.view(), {}, DType::kF32, empty.view());
  EXPECT_EQ(cpu.paths().gemm + cpu.paths().gemv, 0);
}

TEST(CpuLoadWeight, ConvertsOnlyToADifferentDtype) {
  CpuBackend cpu(2);
  const std::vector<float> values = Rng(31).normals(5 * 37);
  const Tensor host(cpu, values, 5, 37, DType::kBF16, 2);
  const Loaded same = load_one(cpu, host.view(), DType::kBF16);
  EXPECT_EQ(same.matrix.data, host.view().data);
  EXPECT_EQ(same.memory.data(), nullptr);
  const Loaded owner = load_one(cpu, host.view(), DType::kF32);
  const Matrix& wide = owner.matrix;
  EXPECT_EQ(wide.data, owner.memory.data());
  ASSERT_EQ(wide.dtype, DType::kF32);
  const std::vector<float> expected = host.values();
  for (int64_t i = 0; i < 5 * 37; ++i) {
    EXPECT_EQ(wide.f32(i / 37)[i % 37], expected[static_cast<size_t>(i)]);
  }
}

TEST(CpuAllocate, AlignsAndReportsFailure) {
  CpuBackend cpu(1);
  for (size_t bytes : {size_t{0}, size_t{100}, size_t{9} << 20}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cpu.allocate(bytes).data()) % 64, 0U);
  }
  EXPECT_THROW(cpu.allocate(std::numeric_limits<size_t>::max()), Error);
#ifndef __SANITIZE_ADDRESS__  // its allocator aborts instead
  EXPECT_THROW(cpu.allocate(size_t{1} << 60), Error);
#endif
}

}  // namespace
}  // namespace lariat::test
