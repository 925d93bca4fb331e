// The tile product on emulated instructions, and on real ones if present.
#if defined(__x86_64__)
#include <bit>
#include <cmath>
#include <map>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "tests/kernels/amx_cases.h"
#include "tests/kernels/grouping_cases.h"

namespace lariat::test {
namespace {

// Sizes around tiles (16, 32), panels (32), column blocks (256) and tasks (256); more rows than a block
// (512); a short panel before a long one; rows of out at and between cache lines.
constexpr LinearShape kShapes[] = {
    {1, 1, 1},      {1, 16, 32},     {9, 1, 257},    {17, 3, 31},    {31, 31, 3},     {16, 16, 32},
    {32, 32, 64},   {33, 33, 33},    {15, 64, 256},  {48, 65, 257},  {130, 172, 172}, {17, 257, 385},
    {64, 112, 576}, {130, 31, 2048}, {9, 1030, 200}, {1100, 48, 70}, {512, 130, 800}, {64, 40, 6200}};

void check_shapes(AmxCall multiply) {
  for (const LinearShape& shape : kShapes) {
    for (int threads : {1, 2, 5}) {
      if (threads != 2 && shape.m * shape.n * shape.k > 10000000) continue;
      SCOPED_TRACE(testing::Message()
                   << "m " << shape.m << " n " << shape.n << " k " << shape.k << " threads " << threads);
      const LinearProblem problem(kBf16, shape, false);
      ASSERT_LE(worst_error(problem, run_amx(multiply, problem, threads)), 1.0);
    }
  }
}

// The instruction's order of summation, 32 columns at a time.
float expected_sum(int64_t k, const float* x, const float* w) {
  float sum = 0;
  for (int64_t first = 0; first < k; first += 32) {
    float chains[2] = {};
    for (int64_t c = first; c < std::min(first + 32, k); ++c) {
      chains[c % 2] = std::fma(round_to_bf16(x[c]), w[c], chains[c % 2]);
    }
    sum += chains[0] + chains[1];
  }
  return sum;
}

void check_bits(AmxCall multiply) {
  for (const LinearShape& shape : {LinearShape{3, 5, 300}, {40, 70, 590}, {33, 257, 31}, {520, 32, 64}}) {
    const LinearProblem problem(kBf16, shape, false);
    const auto [m, n, k] = shape;
    const std::vector<float> out = run_amx(multiply, problem, 2);
    for (int64_t i = 0; i < m * n; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(i)], expected_sum(k, &problem.x[static_cast<size_t>(i / n * k)],
                                                          &problem.w[static_cast<size_t>(i % n * k)]))
          << "row " << i / n << " column " << i % n << " k " << k;
    }
  }
}

void check_strides_and_bias(AmxCall multiply) {
  for (const LinearShape& shape :
       {LinearShape{5, 3, 31}, {17, 72, 100}, {64, 257, 257}, {70, 130, 400}, {520, 64, 260}}) {
    SCOPED_TRACE(testing::Message() << "m " << shape.m << " n " << shape.n << " k " << shape.k);
    const LinearProblem problem(kBf16, shape, true);
    ASSERT_LE(worst_error(problem, run_amx(multiply, problem, 2, 3)), 1.0);
  }
}

void check_nan(AmxCall multiply) {
  LinearProblem problem(kBf16, {20, 40, 71}, false);
  problem.x[2 * 71 - 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = run_amx(multiply, problem, 2);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 40 == 1) << i;
}

// Rows do not depend on the number of threads or on other rows.
void check_splits(AmxCall multiply) {
  const LinearProblem whole(kBf16, {530, 37, 420}, false);
  const std::vector<float> expected = run_amx(multiply, whole, 1);
  EXPECT_EQ(run_amx(multiply, whole, 3), expected);
  LinearProblem part = whole;
  part.shape.m = 19;
  part.x.assign(whole.x.begin() + 300 * 420, whole.x.begin() + 319 * 420);
  EXPECT_EQ(run_amx(multiply, part, 2),
            std::vector<float>(expected.begin() + 300 * 37, expected.begin() + 319 * 37));
}

// A few streamed rows equal the many-row product bitwise and write only their columns.
void check_few_rows(AmxCall multiply) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {33, 31}, {70, 420}, {257, 64}}) {
    const LinearProblem whole(kBf16, {40, n, k}, false);
    const std::vector<float> expected = run_amx(multiply, whole, 1);
    const Tiled w(whole.w, n, k, 0);
    std::vector<float> x = whole.x;
    for (const int64_t rows : {1, 3, 8, 16}) {
      const Matrix some(x.data(), DType::kF32, rows, k);
      const auto memory = aligned_block(cpu::rounded_bytes(rows, k));
      std::vector<float> out(static_cast<size_t>(rows * (n + 1)), -77.0F);
      const Matrix out_view(out.data(), DType::kF32, rows, n, n + 1);
      const int64_t panels = ceil_div(n, kTiledBlock), half = panels / 2;
      const Matrix rounded = cpu::rounded_rows(some, memory.get());
      const auto few = multiply == kEmulated ? cpu::multiply_few_rows<EmulatedTiles> : cpu::gemv_amx;
      few(rounded, w.view, out_view, half, panels);
      few(rounded, w.view, out_view, 0, half);
      for (int64_t i = 0; i < rows * (n + 1); ++i) {
        const int64_t column = i % (n + 1);
        ASSERT_EQ(out[static_cast<size_t>(i)],
                  column == n ? -77.0F : expected[static_cast<size_t>(i / (n + 1) * n + column)])
            << rows << " rows, n " << n << " k " << k << " at " << i;
      }
    }
  }
}

// Each product of a call equals a separate call bitwise and writes nothing else.
void check_together(AmxCall multiply) {
  for (const LinearShape& shape : {LinearShape{9, 0, 31}, {40, 0, 200}, {530, 0, 40}}) {
    const auto [m, ignored, k] = shape;
    std::vector<LinearProblem> problems;
    int64_t width = 0;
    for (const int64_t n : {70, 1, 300, 33}) {
      problems.emplace_back(kBf16, LinearShape{m, n, k}, n == 70 || n == 33);
      width += n + 1;
    }
    std::vector<float> out(static_cast<size_t>(m * width), -77.0F), expected = out;
    std::vector<Tiled> weights;
    std::vector<Product> products;
    int64_t column = 0;
    for (LinearProblem& p : problems) {
      const int64_t n = p.shape.n;
      products.push_back({weights.emplace_back(p.w, n, k, 0).view,
                          p.bias.empty() ? Matrix() : Matrix(p.bias.data(), DType::kF32, 1, n),
                          Matrix(out.data() + column, DType::kF32, m, n, width)});
      const std::vector<float> alone = run_amx(multiply, p, 2);
      for (int64_t i = 0; i < m * n; ++i) {
        expected[static_cast<size_t>(i / n * width + column + i % n)] = alone[static_cast<size_t>(i)];
      }
      column += n + 1;
    }
    const Matrix x(problems[0].x.data(), DType::kF32, m, k);
    for (const int threads : {1, 5}) {
      const auto scratch = aligned_block(cpu::amx_scratch_bytes(x, products, threads));
      multiply(x, products, scratch.get(), threads);
      ASSERT_EQ(out, expected) << "m " << m << " threads " << threads;
    }
  }
}

// Has the bits of the products of gate and up and of glu, and writes nothing else; also quantized, each by
// another format.
void check_gated(AmxCall multiply) {
  ReferenceBackend host;
  for (const auto& [m, n, k] : {LinearShape{9, 1, 40}, {40, 65, 300}, {530, 150, 270}}) {
    std::vector<float> x = Rng(1).normals(m * k);
    const Matrix x_view(x.data(), DType::kF32, m, k);
    const auto run = [&](const Product& product, int threads) {
      const auto scratch = aligned_block(cpu::amx_scratch_bytes(x_view, {&product, 1}, threads));
      multiply(x_view, {&product, 1}, scratch.get(), threads);
    };
    const Tiled gate(Rng(2).normals(n * k), n, k, 0), up(Rng(3).normals(n * k), n, k, 0);
    using enum ScaleType;
    const Loaded q4 = load_codes(host, random_codes({DType::kQ4, {Code::kLinear, kF16, true}}, n, k)),
                 q6 = load_codes(
                     host, random_codes({DType::kQ8, {Code::kLinear, kNested, false, 16, 256, 6}}, n, k));
    for (const auto& [w, up_w] : {std::pair{gate.view, up.view}, {q4.matrix, q6.matrix}}) {
      std::vector<float> gates(static_cast<size_t>(m * n)), ups = gates;
      std::vector<float> out(static_cast<size_t>(m * (n + 1)), -77.0F), expected = out;
      run({w, {}, {gates.data(), DType::kF32, m, n}}, 1);
      run({up_w, {}, {ups.data(), DType::kF32, m, n}}, 2);
      for (int64_t t = 0; t < m; ++t) {
        cpu::glu_values(&gates[static_cast<size_t>(t * n)], &ups[static_cast<size_t>(t * n)],
                        static_cast<size_t>(n), Activation::kGeluTanh,
                        &expected[static_cast<size_t>(t * (n + 1))]);
      }
      for (const int threads : {1, 3}) {
        run({w, {}, {out.data(), DType::kF32, m, n, n + 1}, up_w, Activation::kGeluTanh}, threads);
        ASSERT_EQ(out, expected) << "m " << m << " n " << n << " threads " << threads;
      }
    }
  }
}

// Equals the product with their bf16 values bitwise: full and partial tiles, panels and blocks, a bias, a NaN
// scale.
void check_quantized(AmxCall multiply) {
  for (const DType dtype : {DType::kQ8, DType::kQ4}) {
    for (const auto& [m, n, k] :
         {LinearShape{9, 1, 1}, {17, 40, 100}, {33, 300, 257}, {520, 70, 90}, {40, 33, 640}}) {
      LinearProblem problem({dtype, DType::kF32}, {m, n, k}, true);
      if (n > 33) problem.w[static_cast<size_t>(33 * k + k / 2)] = NAN;
      expect_close(run_amx(multiply, problem, 3), run_amx(multiply, problem.in_bf16(), 2), 0, 0,
                   testing::PrintToString(problem.dtypes) + " m " + std::to_string(m));
    }
  }
}

// Rounds both operands to bf16; compares with the float64 product of the originals.
void check_quantized_bound(AmxCall multiply) {
  const LinearShape shape{40, 64, 512};
  for (const DType dtype : {DType::kQ8, DType::kQ4}) {
    const LinearProblem problem({dtype, DType::kF32}, shape, false);
    const std::vector<float> out = run_amx(multiply, problem, 1);
    ReferenceBackend host;
    const Loaded weight = load_one(host, Tensor(host, problem.w, shape.n, shape.k).view(), dtype);
    double square = 0;
    for (int64_t i = 0; i < shape.m * shape.n; ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < shape.k; ++c) {
        const double value = static_cast<double>(problem.x[static_cast<size_t>(i / shape.n * shape.k + c)]) *
                             dequantized(weight.matrix, i % shape.n, c);
        sum += value;
        magnitude += std::abs(value);
      }
      const double error = (out[static_cast<size_t>(i)] - sum) / magnitude;
      ASSERT_LE(std::abs(error), 2 * 0x1p-9 * 1.01) << name_of(dtype) << " at " << i;
      square += error * error;
    }
    // Random signs: k roundings cancel to sqrt(k) times less, on average half of that.
    EXPECT_LT(std::sqrt(square / static_cast<double>(out.size())), 2 * 0x1p-9 / std::sqrt(512.0))
        << name_of(dtype);
    EXPECT_GT(std::sqrt(square / static_cast<double>(out.size())), 0.1 * 0x1p-9 / std::sqrt(512.0));
  }
}

// Runs a check on the emulation or the processor.
struct AmxCheck {
  const char* name;
  void (*check)(AmxCall multiply);
};
void PrintTo(const AmxCheck& check, std::ostream* out) { *out << check.name; }
constexpr AmxCheck kAmxChecks[] = {
    {"MatchesReference", check_shapes},
    {"SumsInTheOrderOfColumns", check_bits},
    {"HonoursStridesAndBias", check_strides_and_bias},
    {"NanReachesItsRowAndNothingElse", check_nan},
    {"NoSplitChangesABit", check_splits},
    {"FewRowsHaveTheBitsOfMany", check_few_rows},
    {"ProductsMadeTogetherAreThose", check_together},
    {"AGatedUnitIsItsProducts", check_gated},
    {"QuantisedWeightsAreThoseInBf16", check_quantized},
    {"QuantisedWeightsKeepTheBoundOfBf16", check_quantized_bound},
};
const auto kCheckName = [](const auto& test) { return std::string(test.param.name); };

struct AmxEmulated : testing::TestWithParam<AmxCheck> {};
TEST_P(AmxEmulated, Product) { GetParam().check(kEmulated); }
INSTANTIATE_TEST_SUITE_P(All, AmxEmulated, testing::ValuesIn(kAmxChecks), kCheckName);

struct AmxProcessor : OnAmx, testing::WithParamInterface<AmxCheck> {};
TEST_P(AmxProcessor, Product) { GetParam().check(cpu::gemm_amx); }
INSTANTIATE_TEST_SUITE_P(All, AmxProcessor, testing::ValuesIn(kAmxChecks), kCheckName);

using AmxPeak = OnAmx;
TEST_F(AmxPeak, IsMeasured) {
  float sink = 0;
  EXPECT_EQ(cpu::amx_multiply_adds(80, &sink), 10 * 4 * 2.0 * 16 * 16 * 32);
  EXPECT_FLOAT_EQ(sink, 10 * 32 * std::pow(std::bit_cast<float>(0x3c3c0000), 2.0F));  // a value of a tile
}

TEST(AmxSchedule, PacksXOnceForAllProducts) {
  constexpr int64_t kM = 40, kN = 20, kK = 64;
  std::vector<float> x(kM * kK), out(3 * kM * kN);
  const Tiled w(std::vector<float>(kN * kK), kN, kK, 0);
  std::vector<Product> products;
  for (int64_t p = 0; p < 3; ++p) {
    products.push_back({w.view, Matrix(), Matrix(out.data() + p * kM * kN, DType::kF32, kM, kN)});
  }
  const Matrix x_view(x.data(), DType::kF32, kM, kK);
  const auto scratch = aligned_block(cpu::amx_scratch_bytes(x_view, products, 1));
  std::vector<int64_t> tasks;
  cpu::amx_product<EmulatedTiles>(x_view, products, scratch.get(), 1, [&](int64_t n, const auto& body) {
    tasks.push_back(n);
    for (int64_t task = 0; task < n; ++task) body(task, 0);
  });
  EXPECT_EQ(tasks, (std::vector<int64_t>{2, 3}));  // blocks of x; all of w
}

struct RecordedFetches : EmulatedTiles {
  static inline std::map<uintptr_t, int> lines;
  template <int kC, int kA, int kB>
  static void dot() {}
  static void fetch(const void* line) { ++lines[reinterpret_cast<uintptr_t>(line) / 64]; }
};

// Prefetches each line of w after the first panel, for any number of x blocks, and of packed x after the
// first column block, once.
void check_fetches(int64_t m) {
  const int64_t n = 150, k = 800;
  std::vector<float> x(static_cast<size_t>(m * k)), out(static_cast<size_t>(m * n));
  const Tiled w(std::vector<float>(static_cast<size_t>(n * k)), n, k, 0);
  const Matrix x_view(x.data(), DType::kF32, m, k);
  const Product product{w.view, {}, {out.data(), DType::kF32, m, n}};
  const auto scratch = aligned_block(cpu::amx_scratch_bytes(x_view, {&product, 1}, 1));
  RecordedFetches::lines.clear();
  emulated_product<RecordedFetches>(x_view, {&product, 1}, scratch.get(), 1);

  std::map<uintptr_t, int> expected;
  const auto weights = reinterpret_cast<uintptr_t>(w.memory.get()) / 64;
  const size_t first = cpu::kAmxColumns / cpu::kTileColumns * cpu::kStepBytes / 64;
  for (size_t line = first; line < stored_bytes(w.view) / 64; ++line) ++expected[weights + line];
  const auto packed = reinterpret_cast<uintptr_t>(scratch.get()) / 64;
  const int64_t line_columns = round_up(m, cpu::kAmxBlock) * 2;  // bytes
  for (int64_t line = line_columns * cpu::kAmxColumns / 64; line < line_columns * k / 64; ++line) {
    ++expected[packed + static_cast<uintptr_t>(line)];
  }
  EXPECT_EQ(RecordedFetches::lines, expected) << "m " << m;
}

TEST(AmxSchedule, FetchesTheNextLinesOnce) {
  for (const int64_t m : {20, 70, 512}) check_fetches(m);
}

TEST(AmxPlanted, MistakesAreDetected) {
  const LinearProblem problem(kBf16, {40, 70, 300}, false);
  EXPECT_LE(worst_error(problem, run_amx(kEmulated, problem, 1)), 1.0);
  EXPECT_GT(worst_error(problem, run_amx(emulated_product<SwappedOperands>, problem, 1)), 100.0);
  EXPECT_GT(worst_error(problem, run_amx(emulated_product<ForgottenZero>, problem, 1)), 100.0);
  EXPECT_GT(worst_error(problem, run_amx(emulated_product<ForgottenSums>, problem, 1)), 100.0);
  EXPECT_THROW(run_amx(emulated_product<KeptTiles>, problem, 1), std::logic_error);
  EXPECT_THROW(run_amx(emulated_product<ShortTile>, problem, 1), TileFault);
}

}  // namespace
}  // namespace lariat::test
#endif
