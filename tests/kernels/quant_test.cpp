#include "kernels/quant.h"

#include <cmath>

#include "hwy/targets.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/quant_matmul.h"
#include "tests/bits_of_rows.h"
#include "tests/kernels/cpu_fixture.h"
#include "tests/kernels/grouping_cases.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {
namespace {

constexpr DType kTypes[] = {DType::kQ8, DType::kQ4};

// Normals, mixed with every special value.
std::vector<float> weights(int64_t rows, int64_t cols, bool strange, uint64_t seed = 5) {
  std::vector<float> w = Rng(seed).normals(rows * cols, 0.02F);
  if (!strange) return w;
  const float kStrange[] = {0.0F, -0.0F, 1e-42F, 1e-33F, 3e38F, -65504.0F, INFINITY, NAN, 0.5F, -0.5F};
  for (size_t i = 0; i < w.size(); i += 71) w[i] = kStrange[i / 71 % std::size(kStrange)];
  for (size_t i = 0; i < std::min<size_t>(w.size(), 96); ++i) w[i] = i < 32 ? 0.0F : i < 64 ? 1e-35F : 0.25F;
  return w;
}

TEST(Quantize, TheVectorVersionIsBitwiseIdentical) {
  CpuBackend cpu(2);
  ReferenceBackend reference;
  for (const DType dtype : kTypes) {
    for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {16, 64}, {17, 65}, {5, 300}}) {
        for (const bool strange : {false, true}) {
          const Tensor host(cpu, weights(rows, cols, strange), rows, cols, from, 3);
          EXPECT_EQ(bytes_of(load_one(cpu, host.view(), dtype).matrix),
                    bytes_of(load_one(reference, host.view(), dtype).matrix))
              << name_of(dtype) << " from " << name_of(from) << " " << rows << "x" << cols;
        }
      }
    }
  }
}

TEST(Quantize, Q8IsWithinHalfAStep) {
  CpuBackend cpu(1);
  const int64_t rows = 7, cols = 200;
  const std::vector<float> w = weights(rows, cols, false);
  const Loaded q = load_one(cpu, Tensor(cpu, w, rows, cols).view(), DType::kQ8);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      float largest = 0;
      for (int64_t i = c / 32 * 32; i < std::min(c / 32 * 32 + 32, cols); ++i)
        largest = std::max(largest, std::abs(w[static_cast<size_t>(r * cols + i)]));
      // a step is at most 1/127 of the largest, rounded up to 8 bits
      const double half_step = largest / 127 * (1 + 0x1p-7) / 2 * (1 + 1e-6);
      EXPECT_LE(std::abs(dequantized(q.matrix, r, c) - w[static_cast<size_t>(r * cols + c)]), half_step);
    }
  }
}

// The largest weight is one end of the scale; the other end is a step short and clips by up to a step.
TEST(Quantize, Q4IsWithinHalfAStepExceptAtTheShortEnd) {
  CpuBackend cpu(1);
  const int64_t rows = 64, cols = 256;
  const std::vector<float> w = weights(rows, cols, false);
  const Loaded q = load_one(cpu, Tensor(cpu, w, rows, cols).view(), DType::kQ4);
  int64_t clipped = 0;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const auto* group = &w[static_cast<size_t>(i / 32 * 32)];
    const float extreme =
        *std::max_element(group, group + 32, [](float a, float b) { return std::abs(a) < std::abs(b); });
    const double step = std::abs(extreme) / 8.0 * (1 + 0x1p-8), value = w[static_cast<size_t>(i)];
    const double error = std::abs(dequantized(q.matrix, i / cols, i % cols) - value);
    EXPECT_LE(error, value / extreme < -7.5 / 8 ? 1.03 * step : 0.53 * step) << i;  // 8 steps of 2^-8 more
    clipped += error > 0.53 * step ? 1 : 0;
  }
  EXPECT_LT(clipped, rows * cols / 100);
}

class QuantMatmul : public CpuOp<DType> {
 protected:
  LinearCase dtypes() const { return {param(), DType::kF32}; }
  int64_t most_integers() const { return linear_rows_alike(true); }
};

TEST_P(QuantMatmul, MatchesReference) { check_linear_shapes(cpu_, reference_, dtypes(), most_integers()); }
TEST_P(QuantMatmul, HonoursStridesAndBias) {
  check_linear_strides_and_bias(cpu_, reference_, dtypes(), most_integers());
}
TEST_P(QuantMatmul, MoreRowsThanAreQuantizedAtATime) {
  check_linear(cpu_, reference_, dtypes(), {1030, 13, 70}, 0, true, most_integers());
}
TEST_P(QuantMatmul, NanReachesOnlyItsRowAndColumn) {
  LinearProblem p(dtypes(), {3, 40, 71}, false);
  p.w = weights(40, 71, true);
  p.x[71] = NAN;
  const std::vector<float> actual = p.run(cpu_), expected = p.run(reference_);
  int64_t numbers = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(std::isnan(actual[i]), std::isnan(expected[i])) << i;
    numbers += std::isnan(actual[i]) ? 0 : 1;
    EXPECT_TRUE(i / 40 != 1 || std::isnan(actual[i])) << i;
  }
  EXPECT_GT(numbers, 0);
}
LARIAT_ON_CPU(QuantMatmul, kTypes);

// Every instruction set of this processor.
class QuantDot : public testing::TestWithParam<int64_t> {
 protected:
  static void use(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override { use(0); }
};

using QuantKernel = void (*)(const cpu::QuantTask&);

// The default comes first.
std::vector<QuantKernel> kernels_here() {
  std::vector<QuantKernel> kernels{cpu::quant_dot};
  if (cpu::has_avx2()) kernels.insert(kernels.begin(), cpu::quant_dot_avx2);
  if (cpu::has_avx512_vnni()) kernels.insert(kernels.begin(), cpu::quant_dot_vnni);
  return kernels;
}

constexpr int64_t kDotRows = 6, kDotInputs = 230, kDotOutputs = 40;

std::vector<float> by_kernel(DType dtype, QuantKernel kernel, const std::vector<float>& inputs,
                             const std::vector<float>& w_values) {
  CpuBackend cpu(1);
  const int64_t n = kDotOutputs, k = kDotInputs, m = kDotRows;
  const Tensor x(cpu, inputs, m, k), host(cpu, w_values, n, k), out(cpu, m, n);
  const Loaded weight = load_one(cpu, host.view(), dtype);
  const Matrix& w = weight.matrix;
  const int64_t groups = QuantLayout(w).groups();
  const Buffer memory = cpu.allocate(cpu::QuantRows::bytes(m, groups, 1));
  const cpu::QuantRows rows(memory.data(), m, groups, 1);
  cpu::quantize_rows(x.view(), rows, 0, m);
  for (int64_t tile = 0; tile < 3; ++tile) kernel({rows, 0, m, w, tile, 1, 1, out.view()});
  return out.values();
}
std::vector<float> by_kernel(DType dtype, QuantKernel kernel) {
  return by_kernel(dtype, kernel, Rng(3).normals(kDotRows * kDotInputs),
                   weights(kDotOutputs, kDotInputs, false));
}

TEST_P(QuantDot, GivesTheSameResult) {
  for (const DType dtype : kTypes) {
    const std::vector<float> best = by_kernel(dtype, kernels_here()[0]);
    use(GetParam());
    const std::vector<float> actual = by_kernel(dtype, cpu::quant_dot);
    use(0);
    // Integer sums are exact; without FMA the sum of groups rounds twice as often.
    expect_close(actual, best, GetParam() <= HWY_AVX2 ? 0 : 1e-6, 0, hwy::TargetName(GetParam()));
  }
}
INSTANTIATE_TEST_SUITE_P(Targets, QuantDot, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

// Pair and group sums of the largest integers must not overflow, with equal and alternating signs.
TEST(QuantKernels, AllGiveTheSameBitsAtTheEndsOfTheirIntegers) {
  const auto ends = [](int64_t count, int64_t period) {
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i / period % 2 == 0 ? -1.0F : 1.0F;
    return values;
  };
  for (const DType dtype : kTypes) {
    for (const int64_t x_period : {1, 2, 230, 6 * 230}) {
      for (const int64_t w_period : {1, 230, 40 * 230}) {
        const auto x = ends(kDotRows * kDotInputs, x_period), w = ends(kDotOutputs * kDotInputs, w_period);
        const std::vector<float> plain = by_kernel(dtype, cpu::quant_dot, x, w);
        for (const QuantKernel kernel : kernels_here()) {
          EXPECT_EQ(by_kernel(dtype, kernel, x, w), plain)
              << name_of(dtype) << " " << x_period << " " << w_period;
        }
      }
    }
  }
}

TEST(QuantKernels, AllGiveTheSameBitsForAnyRowsAndTiles) {
  CpuBackend cpu(1);
  const int64_t n = 120, k = 330;
  for (const DType dtype : kTypes) {
    const Loaded weight = load_one(cpu, Tensor(cpu, weights(n, k, false), n, k).view(), dtype);
    const Matrix& w = weight.matrix;
    for (const int64_t m : {1, 2, 3, 4, 5, 6}) {
      const Tensor x(cpu, Rng(4).normals(m * k), m, k);
      const int64_t groups = QuantLayout(w).groups();
      const Buffer memory = cpu.allocate(cpu::QuantRows::bytes(m, groups, 1));
      const cpu::QuantRows rows(memory.data(), m, groups, 1);
      cpu::quantize_rows(x.view(), rows, 0, m);
      const Tensor plain(cpu, m, n);
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t tile = 0; tile < 8; ++tile) cpu::quant_dot({rows, row, 1, w, tile, 1, 1, plain.view()});
      }
      const int64_t tiles = m <= cpu::kFewQuantRows ? 4 : 2;
      for (const QuantKernel kernel : kernels_here()) {
        const Tensor out(cpu, m, n);
        for (int64_t tile = 0; tile < 8 / tiles; ++tile) {
          kernel({rows, 0, m, w, tile, 8 / tiles, tiles, out.view()});
        }
        EXPECT_EQ(out.values(), plain.values()) << name_of(dtype) << " " << m << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace lariat::test
