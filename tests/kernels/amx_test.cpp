// The product on AMX tiles: the kernel's own code on an emulation of the instructions, on any x86-64, and the
// instructions themselves where the processor has them.
#if defined(__x86_64__)
#include <atomic>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include "kernels/cpu/amx_product.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/amx_emulation.h"
#include "tests/kernels/matmul_cases.h"

namespace lariat::test {
namespace {

// body(task, thread) on threads of its own. A fault of one of them is thrown here; tiles that a thread still
// holds when it is done are a failure.
template <class Body>
void on_threads(int threads, int64_t count, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::vector<std::exception_ptr> faults(static_cast<size_t>(threads));
  std::atomic<int> holding = 0;
  std::vector<std::thread> team;
  for (int thread = 0; thread < threads; ++thread) {
    team.emplace_back([&, thread] {
      try {
        for (int64_t task = next++; task < count; task = next++) body(task, thread);
      } catch (...) {
        faults[static_cast<size_t>(thread)] = std::current_exception();
      }
      if (EmulatedTiles::configured()) ++holding;
    });
  }
  for (std::thread& member : team) member.join();
  for (const std::exception_ptr& fault : faults) {
    if (fault) std::rethrow_exception(fault);
  }
  if (holding != 0) throw std::logic_error("a thread kept its tiles");
}

using AmxCall = void (*)(const Matrix& x, std::span<const Product> products, void* scratch, int threads);

template <class Tiles>
void emulated_product(const Matrix& x, std::span<const Product> products, void* scratch, int threads) {
  cpu::amx_product<Tiles>(x, products, scratch, threads,
                          [threads](int64_t count, const auto& body) { on_threads(threads, count, body); });
}

// Values in rows `gap` elements apart, in a block that ends with the last row; the gaps hold NaN.
template <class T, class Convert>
std::vector<T> spread(const std::vector<float>& values, int64_t cols, int64_t gap, const Convert& convert) {
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  std::vector<T> block(static_cast<size_t>(rows * (cols + gap) - gap),
                       convert(std::numeric_limits<float>::quiet_NaN()));
  for (int64_t i = 0; i < rows * cols; ++i) {
    block[static_cast<size_t>(i / cols * (cols + gap) + i % cols)] = convert(values[static_cast<size_t>(i)]);
  }
  return block;
}

struct Free {
  void operator()(void* data) const { std::free(data); }
};

std::unique_ptr<char, Free> aligned_block(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes) != 0) throw std::bad_alloc();
  return std::unique_ptr<char, Free>(static_cast<char*>(data));
}

// The product of a problem. Every block of memory is as large as it has to be and not a byte larger; scratch
// holds NaN at first, and so does out; between out's rows nothing may change.
std::vector<float> run_amx(AmxCall multiply, const MatmulProblem& problem, int threads, int64_t gap = 0) {
  const auto [m, n, k] = problem.shape;
  const auto same = [](float value) { return value; };
  std::vector<float> x = spread<float>(problem.x, k, gap, same), bias = problem.bias;
  std::vector<uint16_t> w = spread<uint16_t>(problem.w, k, gap, f32_to_bf16);
  const std::vector<float> before = spread<float>(std::vector<float>(static_cast<size_t>(m * n), NAN), n, gap,
                                                  [](float) { return -77.0F; });
  const auto block = aligned_block(before.size() * sizeof(float));  // so that whole lines can be written
  auto* out = reinterpret_cast<float*>(block.get());
  std::copy(before.begin(), before.end(), out);
  const Matrix x_view(x.data(), DType::kF32, m, k, k + gap);
  const Matrix w_view(w.data(), DType::kBF16, n, k, k + gap);
  const Matrix out_view(out, DType::kF32, m, n, n + gap);
  const Matrix bias_view = bias.empty() ? Matrix() : Matrix(bias.data(), DType::kF32, 1, n);
  const Product product{w_view, bias_view, out_view};
  const size_t bytes = cpu::amx_scratch_bytes(x_view, {&product, 1}, threads);
  const auto scratch = aligned_block(bytes);
  std::memset(scratch.get(), 0xff, bytes);
  multiply(x_view, {&product, 1}, scratch.get(), threads);

  std::vector<float> result;
  for (size_t i = 0; i < before.size(); ++i) {
    if (static_cast<int64_t>(i) % (n + gap) < n) {
      result.push_back(out[i]);
    } else {
      EXPECT_EQ(out[i], -77.0F) << "between rows, at " << i;
    }
  }
  return result;
}

constexpr MatmulCase kBf16{DType::kBF16, DType::kBF16};

// The largest error of some rows, the first and the last among them, in units of what rounding may cost.
double worst_error(const MatmulProblem& problem, const std::vector<float>& actual) {
  ReferenceBackend reference;
  const auto [m, n, k] = problem.shape;
  const int64_t step = m * n * k > 1000000 ? 37 : 1;
  double worst = 0;
  for (int64_t row = 0; row < m; row += row + 1 < m ? std::min(step, m - 1 - row) : 1) {
    const std::vector<float> expected = problem.run(reference, row, 1);
    for (int64_t o = 0; o < n; ++o) {
      const double error = std::abs(static_cast<double>(actual[static_cast<size_t>(row * n + o)]) -
                                    expected[static_cast<size_t>(o)]);
      worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / problem.tolerance(row, o));
    }
  }
  return worst;
}

// Around the sizes of tiles (16, 32), panels (32), blocks of columns (256) and tasks (256); more rows of x
// than go at a time (512); panels that are short while the next is long; rows of out at and between lines.
constexpr MatmulShape kShapes[] = {
    {1, 1, 1},      {1, 16, 32},     {9, 1, 257},    {17, 3, 31},    {31, 31, 3},     {16, 16, 32},
    {32, 32, 64},   {33, 33, 33},    {15, 64, 256},  {48, 65, 257},  {130, 172, 172}, {17, 257, 385},
    {64, 112, 576}, {130, 31, 2048}, {9, 1030, 200}, {1100, 48, 70}, {512, 130, 800}, {64, 40, 6200}};

void check_shapes(AmxCall multiply) {
  for (const MatmulShape& shape : kShapes) {
    for (int threads : {1, 2, 5}) {
      if (threads != 2 && shape.m * shape.n * shape.k > 10000000) continue;
      SCOPED_TRACE(testing::Message()
                   << "m " << shape.m << " n " << shape.n << " k " << shape.k << " threads " << threads);
      const MatmulProblem problem(kBf16, shape, false);
      ASSERT_LE(worst_error(problem, run_amx(multiply, problem, threads)), 1.0);
    }
  }
}

// Each sum as the instruction takes it, 32 columns after 32: the bits that any cut has to give.
void check_bits(AmxCall multiply) {
  for (const MatmulShape& shape : {MatmulShape{3, 5, 300}, {40, 70, 590}, {33, 257, 31}, {520, 32, 64}}) {
    const MatmulProblem problem(kBf16, shape, false);
    const auto [m, n, k] = shape;
    const std::vector<float> out = run_amx(multiply, problem, 2);
    for (int64_t i = 0; i < m * n; ++i) {
      float sum = 0;
      for (int64_t first = 0; first < k; first += 32) {
        float chains[2] = {};
        for (int64_t c = first; c < std::min(first + 32, k); ++c) {
          chains[c % 2] = std::fma(round_to_bf16(problem.x[static_cast<size_t>(i / n * k + c)]),
                                   problem.w[static_cast<size_t>(i % n * k + c)], chains[c % 2]);
        }
        sum += chains[0] + chains[1];
      }
      ASSERT_EQ(out[static_cast<size_t>(i)], sum) << "row " << i / n << " column " << i % n << " k " << k;
    }
  }
}

void check_strides_and_bias(AmxCall multiply) {
  for (const MatmulShape& shape :
       {MatmulShape{5, 3, 31}, {17, 72, 100}, {64, 257, 257}, {70, 130, 400}, {520, 64, 260}}) {
    SCOPED_TRACE(testing::Message() << "m " << shape.m << " n " << shape.n << " k " << shape.k);
    const MatmulProblem problem(kBf16, shape, true);
    ASSERT_LE(worst_error(problem, run_amx(multiply, problem, 2, 3)), 1.0);
  }
}

void check_nan(AmxCall multiply) {
  MatmulProblem problem(kBf16, {20, 40, 71}, false);
  problem.x[2 * 71 - 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = run_amx(multiply, problem, 2);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 40 == 1) << i;
}

// Neither the threads nor the rows of x beside it change a bit of a row.
void check_splits(AmxCall multiply) {
  const MatmulProblem whole(kBf16, {530, 37, 420}, false);
  const std::vector<float> expected = run_amx(multiply, whole, 1);
  EXPECT_EQ(run_amx(multiply, whole, 3), expected);
  MatmulProblem part = whole;
  part.shape.m = 19;
  part.x.assign(whole.x.begin() + 300 * 420, whole.x.begin() + 319 * 420);
  EXPECT_EQ(run_amx(multiply, part, 2),
            std::vector<float>(expected.begin() + 300 * 37, expected.begin() + 319 * 37));
}

// Products of one x, made together: the bits of each by itself, in outs side by side, of which nothing else
// changes.
void check_together(AmxCall multiply) {
  for (const MatmulShape& shape : {MatmulShape{9, 0, 31}, {40, 0, 300}, {530, 0, 70}}) {
    const auto [m, ignored, k] = shape;
    std::vector<MatmulProblem> problems;
    int64_t width = 0;
    for (const int64_t n : {70, 1, 300, 33}) {
      problems.emplace_back(kBf16, MatmulShape{m, n, k}, n == 70 || n == 33);  // of the same x
      width += n + 1;
    }
    std::vector<float> out(static_cast<size_t>(m * width), -77.0F), expected = out;
    std::vector<std::vector<uint16_t>> weights;
    std::vector<Product> products;
    int64_t column = 0;
    for (MatmulProblem& p : problems) {
      const int64_t n = p.shape.n;
      weights.push_back(spread<uint16_t>(p.w, k, 0, f32_to_bf16));
      products.push_back({Matrix(weights.back().data(), DType::kBF16, n, k),
                          p.bias.empty() ? Matrix() : Matrix(p.bias.data(), DType::kF32, 1, n),
                          Matrix(out.data() + column, DType::kF32, m, n, width)});
      const std::vector<float> alone = run_amx(multiply, p, 2);
      for (int64_t i = 0; i < m * n; ++i) {
        expected[static_cast<size_t>(i / n * width + column + i % n)] = alone[static_cast<size_t>(i)];
      }
      column += n + 1;
    }
    const Matrix x(problems[0].x.data(), DType::kF32, m, k);
    for (const int threads : {1, 2, 5}) {
      const auto scratch = aligned_block(cpu::amx_scratch_bytes(x, products, threads));
      multiply(x, products, scratch.get(), threads);
      ASSERT_EQ(out, expected) << "m " << m << " threads " << threads;
    }
  }
}

TEST(AmxEmulated, MatchesReference) { check_shapes(emulated_product<EmulatedTiles>); }
TEST(AmxEmulated, SumsInTheOrderOfColumns) { check_bits(emulated_product<EmulatedTiles>); }
TEST(AmxEmulated, HonoursStridesAndBias) { check_strides_and_bias(emulated_product<EmulatedTiles>); }
TEST(AmxEmulated, NanReachesItsRowAndNothingElse) { check_nan(emulated_product<EmulatedTiles>); }
TEST(AmxEmulated, NoSplitChangesABit) { check_splits(emulated_product<EmulatedTiles>); }
TEST(AmxEmulated, ProductsMadeTogetherAreThose) { check_together(emulated_product<EmulatedTiles>); }

using AmxProcessor = OnAmx;

TEST_F(AmxProcessor, MatchesReference) { check_shapes(cpu::gemm_amx); }
TEST_F(AmxProcessor, SumsInTheOrderOfColumns) { check_bits(cpu::gemm_amx); }
TEST_F(AmxProcessor, HonoursStridesAndBias) { check_strides_and_bias(cpu::gemm_amx); }
TEST_F(AmxProcessor, NanReachesItsRowAndNothingElse) { check_nan(cpu::gemm_amx); }
TEST_F(AmxProcessor, NoSplitChangesABit) { check_splits(cpu::gemm_amx); }
TEST_F(AmxProcessor, ProductsMadeTogetherAreThose) { check_together(cpu::gemm_amx); }
TEST_F(AmxProcessor, MeasuresItsPeak) {
  float sink = 0;
  EXPECT_EQ(cpu::amx_multiply_adds(80, &sink), 10 * 4 * 2.0 * 16 * 16 * 32);
  EXPECT_GT(sink, 0);
}

TEST(AmxEmulated, PacksXOnceForAllProducts) {
  constexpr int64_t kM = 40, kN = 20, kK = 64;
  std::vector<float> x(kM * kK), out(3 * kM * kN);
  std::vector<uint16_t> w(kN * kK);
  std::vector<Product> products;
  for (int64_t p = 0; p < 3; ++p) {
    products.push_back({Matrix(w.data(), DType::kBF16, kN, kK), Matrix(),
                        Matrix(out.data() + p * kM * kN, DType::kF32, kM, kN)});
  }
  const Matrix x_view(x.data(), DType::kF32, kM, kK);
  const auto scratch = aligned_block(cpu::amx_scratch_bytes(x_view, products, 1));
  std::vector<int64_t> tasks;
  cpu::amx_product<EmulatedTiles>(x_view, products, scratch.get(), 1, [&](int64_t n, const auto& body) {
    tasks.push_back(n);
    for (int64_t task = 0; task < n; ++task) body(task, 0);
  });
  EXPECT_EQ(tasks, (std::vector<int64_t>{2, 3}));  // two blocks of x; then all of w
}

struct RecordedFetches : EmulatedTiles {
  static inline std::map<uintptr_t, int> lines;
  template <int kC, int kA, int kB>
  static void dot() {}  // what is multiplied does not matter here
  static void fetch(const void* line) { ++lines[reinterpret_cast<uintptr_t>(line) / 64]; }
};

// Every line of w but those of the first two panels is fetched once, however many blocks of x pass by, and
// every line of packed x but those of the first block of columns; and nothing else is.
TEST(AmxEmulated, FetchesWhatComesNextAndOnce) {
  for (const int64_t m : {20, 70, 512}) {
    const int64_t n = 150, k = 800, stride = k + 32;  // 26 lines
    std::vector<float> x(static_cast<size_t>(m * k)), out(static_cast<size_t>(m * n));
    const auto w = aligned_block(static_cast<size_t>(n * stride * 2));
    const Matrix x_view(x.data(), DType::kF32, m, k), w_view(w.get(), DType::kBF16, n, k, stride);
    const Product product{w_view, {}, {out.data(), DType::kF32, m, n}};
    const auto scratch = aligned_block(cpu::amx_scratch_bytes(x_view, {&product, 1}, 1));
    RecordedFetches::lines.clear();
    emulated_product<RecordedFetches>(x_view, {&product, 1}, scratch.get(), 1);

    std::map<uintptr_t, int> expected;
    for (int64_t column = 0; column < k; column += cpu::kTileColumns) {
      for (int64_t row = column < cpu::kAmxColumns ? 2 * cpu::kAmxBlock : 0; row < n; ++row) {
        ++expected[reinterpret_cast<uintptr_t>(w.get() + (row * stride + column) * 2) / 64];
      }
    }
    const auto packed = reinterpret_cast<uintptr_t>(scratch.get()) / 64;
    const auto rows = static_cast<uintptr_t>(round_up(m, cpu::kAmxBlock));
    for (uintptr_t line = rows * cpu::kAmxColumns * 2 / 64; line < rows * k * 2 / 64; ++line) {
      ++expected[packed + line];
    }
    EXPECT_EQ(RecordedFetches::lines, expected) << m;
  }
}

// What the checks above are worth.
TEST(AmxPlanted, MistakesAreSeen) {
  const MatmulProblem problem(kBf16, {40, 70, 300}, false);
  EXPECT_LE(worst_error(problem, run_amx(emulated_product<EmulatedTiles>, problem, 1)), 1.0);
  EXPECT_GT(worst_error(problem, run_amx(emulated_product<SwappedOperands>, problem, 1)), 100.0);
  EXPECT_GT(worst_error(problem, run_amx(emulated_product<ForgottenZero>, problem, 1)), 100.0);
  EXPECT_GT(worst_error(problem, run_amx(emulated_product<ForgottenSums>, problem, 1)), 100.0);
  EXPECT_THROW(run_amx(emulated_product<KeptTiles>, problem, 1), std::logic_error);
  EXPECT_THROW(run_amx(emulated_product<ShortTile>, problem, 1), TileFault);
}

}  // namespace
}  // namespace lariat::test
#endif
