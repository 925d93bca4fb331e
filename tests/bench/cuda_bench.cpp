// CUDA ops on Llama-3.1-8B shapes: cache bytes/s if memory-bound, FLOP/s if compute-bound. tools/bench/gpu.sh
// compares PyTorch.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/make_cuda_backend.h"
#include "tests/bench/noise_cache.h"
#include "tests/kernels/grouping_cases.h"

namespace lariat::test {
namespace {

constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr int64_t kBatch = 16;  // ops per synchronization

Backend& gpu() {
  static const std::unique_ptr<Backend> backend = make_cuda_backend();
  return *backend;
}

template <class Op>
void repeat(benchmark::State& state, double work, const char* unit, const Op& op) {
  op();  // table uploads, scratch memory
  gpu().synchronize();
  while (state.KeepRunningBatch(kBatch)) {
    for (int64_t i = 0; i < kBatch; ++i) op();
    gpu().synchronize();
  }
  state.counters[unit] = benchmark::Counter(work, benchmark::Counter::kIsIterationInvariantRate);
}

struct HeadShape {
  int64_t heads, kv_heads, dim;
};
constexpr HeadShape kLlama8B{kHeads, kKvHeads, kHeadDim}, kTinyLlama{32, 4, 64}, kSmolLm135M{9, 3, 64};

void attend(benchmark::State& state, const HeadShape& shape, int64_t n, int64_t depth, double work,
            const char* unit) {
  const NoiseCache cache(gpu(), depth + n, shape.kv_heads, shape.dim);
  const int64_t cols = shape.heads * shape.dim;
  const Tensor q(gpu(), Rng(2).normals(n * cols), n, cols), out(gpu(), n, cols);
  const Rope rope(gpu(), depth, n, frequencies(shape.dim), false);
  const AttentionParams params{shape.heads, 1.0F / std::sqrt(static_cast<float>(shape.dim))};
  const StepSequence sequence{depth, n, cache.pages()};
  const Step step{.sequences = {&sequence, 1}};
  repeat(state, work, unit,
         [&] { gpu().attention(step, q.view(), causal(rope), cache.layer(), params, out.view()); });
}

// Reads K and V of `depth` tokens.
void AttentionDecode(benchmark::State& state, const HeadShape& shape) {
  const int64_t depth = state.range(0);
  attend(state, shape, 1, depth, static_cast<double>((depth + 1) * shape.kv_heads * shape.dim * 2 * 2),
         "B/s");
}
BENCHMARK_CAPTURE(AttentionDecode, llama_8b, kLlama8B)->Arg(8192)->Arg(32768)->Arg(131072)->UseRealTime();
BENCHMARK_CAPTURE(AttentionDecode, tinyllama, kTinyLlama)->Arg(2048)->UseRealTime();

// 4 head_dim FLOP for each of n (n + 1) / 2 pairs per head.
void AttentionPrefill(benchmark::State& state, const HeadShape& shape) {
  const int64_t n = state.range(0);
  attend(state, shape, n, 0, 2.0 * static_cast<double>(n * (n + 1) * shape.heads * shape.dim), "FLOP/s");
}
BENCHMARK_CAPTURE(AttentionPrefill, llama_8b, kLlama8B)
    ->Arg(512)
    ->Arg(2048)
    ->Arg(8192)
    ->Arg(32768)
    ->UseRealTime();
BENCHMARK_CAPTURE(AttentionPrefill, tinyllama, kTinyLlama)->Arg(512)->Arg(2048)->UseRealTime();
BENCHMARK_CAPTURE(AttentionPrefill, smollm_135m, kSmolLm135M)->Arg(512)->Arg(2048)->UseRealTime();

// Reads and writes every key once.
void RerotateKeys(benchmark::State& state) {
  const int64_t positions = state.range(0);
  constexpr int kLayers = 4;
  const NoiseCache cache(gpu(), positions, kKvHeads, kHeadDim, kLayers);
  const std::vector<double> before = frequencies(kHeadDim), after = frequencies(kHeadDim, 1e6);
  const KeyRotation rotation{cache.pages(), positions, {before}, {after}};
  repeat(state, static_cast<double>(kLayers * positions * kKvHeads * kHeadDim * 2 * 2), "B/s", [&] {
    gpu().rerotate_keys({&rotation, 1}, cache.layers(), false);
  });
}
BENCHMARK(RerotateKeys)->Arg(8192)->Arg(131072)->UseRealTime();

// Reads the weights [65536, 4096], larger than any cache, once.
void multiply_by(benchmark::State& state, const Loaded& w, DType compute) {
  const int64_t tokens = state.range(0), n = w.matrix.rows, k = w.matrix.cols;
  const Tensor x(gpu(), Rng(6).normals(tokens * k), tokens, k), out(gpu(), tokens, n);
  repeat(state, static_cast<double>(stored_bytes(w.matrix)), "B/s",
         [&] { multiply(gpu(), x.view(), w.matrix, {}, compute, out.view()); });
  state.counters["weights/s"] =
      benchmark::Counter(static_cast<double>(n * k), benchmark::Counter::kIsIterationInvariantRate);
}
constexpr int64_t kRows = 65536, kCols = 4096, kDistinct = 16;

void ProductOfBf16(benchmark::State& state) {
  const std::vector<float> few = Rng(5).normals(kDistinct * kCols);
  std::vector<float> values;
  for (int64_t r = 0; r < kRows; r += kDistinct) values.insert(values.end(), few.begin(), few.end());
  const Matrix host(values.data(), DType::kF32, kRows, kCols);
  multiply_by(state, load_one(gpu(), host, DType::kBF16), DType::kBF16);
}
BENCHMARK(ProductOfBf16)->Arg(1)->Arg(4)->Arg(8)->Arg(16)->UseRealTime();

void ProductOfFormats(benchmark::State& state) {
  static std::map<int64_t, Loaded> loaded;  // random values take seconds
  const FormatCase c = format_cases()[static_cast<size_t>(state.range(1))];
  if (!loaded.contains(state.range(1))) {
    const HostWeight few = random_codes(c.format, kDistinct, kCols);
    const HostWeight codes(c.format, kRows, kCols,
                           [&](int64_t r, const CodeRow& to) { few.read_row(r % kDistinct, to); });
    loaded[state.range(1)] = load_codes(gpu(), codes);
  }
  multiply_by(state, loaded[state.range(1)], DType::kF32);
  state.SetLabel(c.name);
}
BENCHMARK(ProductOfFormats)
    ->ArgsProduct({{1, 4, 16, 512}, benchmark::CreateDenseRange(0, 25, 1)})
    ->UseRealTime();

// Rows of 128,256 logits, without and with top-p.
void Draw(benchmark::State& state) {
  const int64_t rows = state.range(0), vocab = 128256;
  const Tensor logits(gpu(), Rng(7).normals(rows * vocab), rows, vocab);
  const std::vector<Sampling> how(
      static_cast<size_t>(rows),
      {.temperature = state.range(1) == 0 ? 0.0F : 0.8F, .top_p = state.range(1) == 2 ? 0.9F : 1.0F});
  const std::vector<double> uniforms(static_cast<size_t>(rows), 0.4);
  repeat(state, static_cast<double>(rows), "tokens/s", [&] { gpu().draw(logits.view(), how, uniforms); });
}
BENCHMARK(Draw)->ArgsProduct({{1, 16}, {0, 1, 2}})->UseRealTime();

}  // namespace
}  // namespace lariat::test

int main(int argc, char** argv) {
  const std::string reason = lariat::cuda_unavailable_reason();
  if (!reason.empty()) {
    std::fprintf(stderr, "cuda_bench: error: %s\n", reason.c_str());
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
