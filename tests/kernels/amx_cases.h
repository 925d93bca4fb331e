#pragma once
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <span>
#include <string>

#include "kernels/cpu/amx_product.h"
#include "kernels/cpu/lay_out_rows.h"
#include "tests/kernels/amx_emulation.h"
#include "tests/kernels/linear_cases.h"

namespace lariat::test {

// Rethrows errors of body(task, thread) on new threads; fails if a thread ends with configured tiles.
template <class Body>
void on_threads(int threads, int64_t count, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::atomic<int> holding = 0;
  std::vector<std::future<void>> team;
  for (int thread = 0; thread < threads; ++thread) {
    team.push_back(std::async(std::launch::async, [&, thread] {
      for (int64_t task = next++; task < count; task = next++) body(task, thread);
      if (EmulatedTiles::configured()) ++holding;
    }));
  }
  for (std::future<void>& member : team) member.get();
  if (holding != 0) throw std::logic_error("a thread kept its tiles");
}

using AmxCall = void (*)(const Matrix& x, std::span<const Product> products, void* scratch, int threads);

template <class Tiles>
void emulated_product(const Matrix& x, std::span<const Product> products, void* scratch, int threads) {
  cpu::amx_product<Tiles>(x, products, scratch, threads,
                          [threads](int64_t count, const auto& body) { on_threads(threads, count, body); });
}

inline constexpr AmxCall kEmulated = emulated_product<EmulatedTiles>;

// Rows `gap` elements apart; the block ends with the last row.
inline std::vector<char> spread(const std::vector<float>& values, int64_t cols, int64_t gap, DType dtype,
                                float between = NAN) {
  const int64_t n = static_cast<int64_t>(values.size()) / cols * (cols + gap) - gap;
  std::vector<char> block(static_cast<size_t>(n) * size_of(dtype));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = i / (cols + gap), column = i % (cols + gap);
    const bool gap_here = column >= cols;
    store_f32(block.data(), dtype, i, gap_here ? between : values[static_cast<size_t>(row * cols + column)]);
  }
  return block;
}

struct Free {
  void operator()(void* data) const { std::free(data); }
};

inline std::unique_ptr<char, Free> aligned_block(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes) != 0) throw std::bad_alloc();
  return std::unique_ptr<char, Free>(static_cast<char*>(data));
}

// bf16 rows in load_weight's layout.
struct Tiled {
  std::unique_ptr<char, Free> memory;
  Matrix view;

  Tiled(const std::vector<float>& w, int64_t n, int64_t k, int64_t gap) : view(nullptr, DType::kBF16, n, k) {
    view.tiled = true;
    memory = aligned_block(stored_bytes(view));
    view.data = memory.get();
    std::vector<char> rows = spread(w, k, gap, DType::kBF16);
    cpu::lay_out_rows(Matrix(rows.data(), DType::kBF16, n, k, k + gap), 0, view, 1);
  }
};

// Scratch and out start as NaN; the gaps of out must not change.
inline std::vector<float> run_amx(AmxCall multiply, const LinearProblem& problem, int threads,
                                  int64_t gap = 0) {
  const auto [m, n, k] = problem.shape;
  std::vector<float> bias = problem.bias;
  std::vector<char> x = spread(problem.x, k, gap, DType::kF32);
  ReferenceBackend host;
  const bool quantized = is_quantized(problem.dtypes.weights);
  const Loaded loaded =
      quantized ? load_one(host, Tensor(host, problem.w, n, k).view(), problem.dtypes.weights) : Loaded();
  const std::vector<char> before =
      spread(std::vector<float>(static_cast<size_t>(m * n), NAN), n, gap, DType::kF32, -77.0F);
  const auto block = aligned_block(before.size());  // whole lines may be written
  auto* out = reinterpret_cast<float*>(block.get());
  std::memcpy(out, before.data(), before.size());
  const Matrix x_view(x.data(), DType::kF32, m, k, k + gap);
  const Tiled tiled(problem.w, n, k, gap);
  const Matrix w_view = quantized ? loaded.matrix : tiled.view;
  const Matrix out_view(out, DType::kF32, m, n, n + gap);
  const Matrix bias_view = bias.empty() ? Matrix() : Matrix(bias.data(), DType::kF32, 1, n);
  const Product product{w_view, bias_view, out_view};
  const size_t bytes = cpu::amx_scratch_bytes(x_view, {&product, 1}, threads);
  const auto scratch = aligned_block(bytes);
  std::memset(scratch.get(), 0xff, bytes);
  multiply(x_view, {&product, 1}, scratch.get(), threads);

  std::vector<float> result;
  for (size_t i = 0; i < before.size() / sizeof(float); ++i) {
    if (static_cast<int64_t>(i) % (n + gap) < n) {
      result.push_back(out[i]);
    } else {
      EXPECT_EQ(out[i], -77.0F) << "between rows, at " << i;
    }
  }
  return result;
}

inline constexpr LinearCase kBf16{DType::kBF16, DType::kBF16};

inline double worst_error(const LinearProblem& problem, const std::vector<float>& actual) {
  ReferenceBackend reference;
  return problem.worst_error(reference, actual);
}

}  // namespace lariat::test
