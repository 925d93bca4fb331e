#include <bit>

#include "kernels/error.h"
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/op_cases.h"

namespace lariat::test {
namespace {

using Matmul = CpuOp<MatmulCase>;
TEST_P(Matmul, MatchesReference) { check_matmul_shapes(cpu_, reference_, param()); }
TEST_P(Matmul, HonoursStridesAndBias) { check_matmul_strides_and_bias(cpu_, reference_, param()); }
TEST_P(Matmul, DoesNotDependOnHowRowsAreSplit) { check_matmul_splits(cpu_, param()); }
TEST_P(Matmul, NanReachesItsRowAndNothingElse) { check_matmul_nan(cpu_, param()); }
LARIAT_ON_CPU(Matmul, matmul_cases());

// Stronger than the cases ask for: threads share out rows of w, never a sum.
TEST(CpuMatmul, ThreadsDoNotChangeABit) {
  CpuBackend one(1), two(2), five(5);
  for (const MatmulCase& c : matmul_cases()) {
    for (int64_t m : {1, 6, 70}) {
      const MatmulProblem problem(c, {m, 101, 300}, true);
      const std::vector<float> expected = problem.run(one);
      EXPECT_EQ(problem.run(two), expected);
      EXPECT_EQ(problem.run(five), expected);
    }
  }
}

// A decode step sees the bits that the same token gives in a small batch.
TEST(CpuMatmul, FewRowsGiveTheBitsOfOneRow) {
  CpuBackend cpu(2);
  for (const MatmulCase& c : matmul_cases()) {
    const MatmulProblem problem(c, {8, 37, 515}, false);
    const std::vector<float> together = problem.run(cpu);
    for (int64_t row = 0; row < 8; ++row) {
      const std::vector<float> alone = problem.run(cpu, row, 1);
      EXPECT_EQ(std::vector<float>(together.begin() + row * 37, together.begin() + (row + 1) * 37), alone);
    }
  }
}

// And a chunk of a prompt those that it gives within the whole prompt, as long as both are products of many
// rows; 3073 columns are summed in more than one block.
TEST(CpuMatmul, ManyRowsGiveTheBitsOfAnyOtherMany) {
  CpuBackend cpu(2);
  for (const MatmulCase& c : matmul_cases()) {
    const MatmulProblem problem(c, {70, 37, 3073}, true);
    const std::vector<float> together = problem.run(cpu);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 9}, {9, 33}, {61, 9}}) {
      const auto begin = together.begin() + first * 37;
      EXPECT_EQ(problem.run(cpu, first, count), std::vector<float>(begin, begin + count * 37));
    }
  }
  EXPECT_EQ(cpu.paths().gemv, 0);
}

TEST(CpuMatmul, MoreRowsThanOneBlock) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  check_matmul(cpu, reference, {DType::kBF16, DType::kBF16}, {1100, 13, 70});
  check_matmul(cpu, reference, {DType::kF16, DType::kF32}, {1100, 13, 70});
}

// The weights and biases of some products of one x, whose outs lie side by side in a matrix, a column apart.
class Projection {
 public:
  Projection(CpuBackend& cpu, int64_t m, int64_t k, const std::vector<DType>& dtypes, DType compute)
      : cpu_(cpu), compute_(compute), x_(cpu, Rng(3).normals(m * k), m, k, DType::kF32, 2) {
    constexpr int64_t kRows[] = {70, 1, 33, 150, 16};
    for (size_t p = 0; p < dtypes.size(); ++p) {
      const int64_t n = kRows[p % std::size(kRows)];
      const bool quantized = is_quantized(dtypes[p]);
      host_.emplace_back(cpu, Rng(p + 5).normals(n * k), n, k, quantized ? DType::kF32 : dtypes[p],
                         quantized ? 0 : 3);
      weights_.push_back(cpu.load_weight(host_.back().view(), dtypes[p]));
      biases_.push_back(p % 2 == 0 ? Tensor(cpu, Rng(p + 9).normals(n), 1, n) : Tensor());
      width_ += n + 1;
    }
  }

  // Their outs and what is between them, by the bits.
  std::vector<uint32_t> run(bool together) {
    const Tensor out(cpu_, x_.view().rows, width_);
    std::vector<Product> products;
    int64_t column = 0;
    for (size_t p = 0; p < weights_.size(); ++p) {
      const Matrix& w = weights_[p].matrix;
      products.push_back({w, biases_[p].view(), out.view().column_range(column, w.rows)});
      column += w.rows + 1;
    }
    if (together) cpu_.project(x_.view(), products, compute_);
    for (const auto& [w, bias, to] : products) {
      if (!together) cpu_.matmul(x_.view(), w, bias, compute_, to);
    }
    std::vector<uint32_t> bits;
    for (const float value : out.values()) bits.push_back(std::bit_cast<uint32_t>(value));
    return bits;
  }

 private:
  CpuBackend& cpu_;
  DType compute_;
  Tensor x_;
  std::vector<Tensor> host_, biases_;
  std::vector<Weight> weights_;
  int64_t width_ = 0;
};

constexpr DType kDtypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4};

void check_projection(const std::vector<DType>& dtypes) {
  for (const int threads : {1, 2, 5}) {
    CpuBackend cpu(threads);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const int64_t m : {1, 3, 8, 9, 40}) {
        for (const int64_t k : {31, 512, 1030}) {
          Projection projection(cpu, m, k, dtypes, compute);
          ASSERT_EQ(projection.run(true), projection.run(false))
              << threads << " threads, computed in " << name_of(compute) << ", m " << m << " k " << k;
        }
      }
    }
  }
}

TEST(CpuProject, GivesTheBitsOfEachProductByItself) {
  for (const DType dtype : kDtypes) {
    SCOPED_TRACE(name_of(dtype));
    check_projection(std::vector<DType>(5, dtype));
  }
}
TEST(CpuProject, TakesWeightsOfSeveralDtypes) {
  check_projection(
      {DType::kQ8, DType::kQ8, DType::kQ4, DType::kF32, DType::kBF16, DType::kBF16, DType::kF16, DType::kQ8});
}
// Many rows go through blocks of weights, whatever these are: no prefill runs at the speed of decoding.
TEST(CpuProject, MultipliesManyRowsInBlocks) {
  for (const DType dtype : kDtypes) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      CpuBackend cpu(2);
      for (const int64_t m : {9, 40, 600}) Projection(cpu, m, 64, {dtype, dtype, dtype}, compute).run(true);
      EXPECT_EQ(cpu.paths().gemm, 9) << name_of(dtype) << " weights, computed in " << name_of(compute);
      EXPECT_EQ(cpu.paths().gemv, 0);
      Projection(cpu, 1, 64, {dtype}, compute).run(true);
      EXPECT_EQ(cpu.paths().gemv, 1);
    }
  }
}
TEST(CpuProject, OfNothingDoesNothing) {
  CpuBackend cpu(2);
  const Tensor x(cpu, {}, 0, 64), w(cpu, Rng(1).normals(64), 1, 64), out(cpu, 0, 1), none(cpu, {}, 0, 64);
  const Product of_no_rows{w.view(), {}, out.view()};
  cpu.project(x.view(), {&of_no_rows, 1}, DType::kF32);
  cpu.project(x.view(), {}, DType::kF32);
  const Tensor rows(cpu, Rng(2).normals(20 * 64), 20, 64), empty(cpu, 20, 0, 1);
  const Product of_no_outputs{none.view(), {}, empty.view()};
  cpu.project(rows.view(), {&of_no_outputs, 1}, DType::kF32);
  EXPECT_EQ(cpu.paths().gemm + cpu.paths().gemv, 0);
}

TEST(CpuLoadWeight, ConvertsWhenTheDtypeDiffersAndOnlyThen) {
  CpuBackend cpu(2);
  const std::vector<float> values = Rng(31).normals(5 * 37);
  const Tensor host(cpu, values, 5, 37, DType::kBF16, 2);
  const Weight same = cpu.load_weight(host.view(), DType::kBF16);
  EXPECT_EQ(same.matrix.data, host.view().data);
  EXPECT_EQ(same.memory.data(), nullptr);
  const Weight owner = cpu.load_weight(host.view(), DType::kF32);
  const Matrix& wide = owner.matrix;
  EXPECT_EQ(wide.data, owner.memory.data());
  ASSERT_EQ(wide.dtype, DType::kF32);
  const std::vector<float> expected = host.values();
  for (int64_t i = 0; i < 5 * 37; ++i) {
    EXPECT_EQ(wide.f32(i / 37)[i % 37], expected[static_cast<size_t>(i)]);
  }
}

TEST(CpuAllocate, AlignsAndSaysWhenThereIsNone) {
  CpuBackend cpu(1);
  for (size_t bytes : {size_t{0}, size_t{100}, size_t{9} << 20}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cpu.allocate(bytes).data()) % 64, 0U);
  }
  EXPECT_THROW(cpu.allocate(std::numeric_limits<size_t>::max()), Error);
#ifndef __SANITIZE_ADDRESS__  // its allocator stops the program instead of answering
  EXPECT_THROW(cpu.allocate(size_t{1} << 60), Error);
#endif
}

}  // namespace
}  // namespace lariat::test
