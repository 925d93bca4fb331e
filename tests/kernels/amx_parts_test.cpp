// Floats in bf16 parts (kernels/cpu/amx_parts.h) on an emulation of the tiles.
#if defined(__x86_64__)
#include "tests/kernels/amx_cases.h"

namespace lariat::test {
namespace {

// Parts sum up to the value, and lie where they belong.
TEST(AmxPack, PartsAreTheValueToTheLastBit) {
  constexpr int64_t kRows = 16, kCols = 40;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const int64_t parts = dtype == DType::kF32 ? 3 : dtype == DType::kF16 ? 2 : 1;
    std::vector<float> values = Rng(4).normals(kRows * kCols);
    const float kOdd[] = {0.0F, -0.0F, 65504.0F, -0x1.ffcp-3F, 0x1p-24F, 0x1.ff8p-15F, 1.0F, -0x1.004p0F};
    std::copy(std::begin(kOdd), std::end(kOdd), values.begin() + 36);  // around the end of the first row
    std::vector<char> x = spread(values, kCols, 3, dtype);
    const auto tiles = aligned_block(static_cast<size_t>(2 * parts * cpu::kTileBytes));
    std::memset(tiles.get(), 0xff, static_cast<size_t>(2 * parts * cpu::kTileBytes));
    cpu::pack_rows({x.data(), dtype, kRows, kCols, kCols + 3}, parts, tiles.get(), cpu::kTileBytes,
                   parts * cpu::kTileBytes);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < 64; ++c) {
        double sum = 0;
        for (int64_t p = 0; p < parts; ++p) {
          const char* tile = tiles.get() + (c / 32 * parts + p) * cpu::kTileBytes;
          sum += static_cast<double>(load_f32(tile, DType::kBF16, r * 32 + c % 32));
        }
        const double value = c < kCols ? load_f32(x.data(), dtype, r * (kCols + 3) + c) : 0.0F;
        ASSERT_EQ(sum, value) << name_of(dtype) << " row " << r << " column " << c;
      }
    }
  }
}

// The error of sums of 2048 products, root of the mean square, in parts and by f32 multiply-adds one after
// the other, as the kernels without tiles make them.
TEST(AmxEmulated, PartsAreMoreExactThanMultiplyAdds) {
  for (const LinearCase& c : {kF32, kF16, LinearCase{DType::kBF16, DType::kF32}}) {
    const LinearProblem problem(c, {32, 48, 2048}, false);
    const auto [m, n, k] = problem.shape;
    const std::vector<float> out = run_amx(kEmulated, problem, 2);
    double parts = 0, multiply_adds = 0;
    for (int64_t i = 0; i < m * n; ++i) {
      double exact = 0;
      float sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const float x = problem.x[static_cast<size_t>(i / n * k + j)];
        const float w = problem.w[static_cast<size_t>(i % n * k + j)];
        exact += static_cast<double>(x) * w;
        sum = std::fma(x, w, sum);
      }
      parts += std::pow(out[static_cast<size_t>(i)] - exact, 2);
      multiply_adds += std::pow(sum - exact, 2);
    }
    const double size = std::sqrt(static_cast<double>(m * n * k));
    testing::Test::RecordProperty(std::string(name_of(c.weights)),
                                  std::to_string(1e9 * std::sqrt(parts) / size) + " of 1e-9, multiply-adds " +
                                      std::to_string(1e9 * std::sqrt(multiply_adds) / size));
    EXPECT_LT(parts, multiply_adds) << testing::PrintToString(c);
  }
}

// Leaves out one pair of parts of every tile of columns. On one thread.
struct ForgottenPair : EmulatedTiles {
  static inline int64_t pairs = 1, which = 0, calls = 0;
  template <int kC, int kA, int kB>
  static void dot() {
    if (calls++ / 4 % pairs != which) EmulatedTiles::dot<kC, kA, kB>();
  }
};

TEST(AmxPlanted, AForgottenPairOfPartsIsSeen) {
  for (const LinearCase& c : linear_cases()) {
    const LinearProblem problem(c, {40, 70, 40}, false);
    ForgottenPair::pairs = static_cast<int64_t>(pairs_of(c).size());
    for (ForgottenPair::which = 0; ForgottenPair::which < ForgottenPair::pairs; ++ForgottenPair::which) {
      ForgottenPair::calls = 0;
      EXPECT_GT(worst_error(problem, run_amx(emulated_product<ForgottenPair>, problem, 1)), 1.0)
          << testing::PrintToString(c) << ", pair " << ForgottenPair::which;
    }
  }
}

}  // namespace
}  // namespace lariat::test
#endif
