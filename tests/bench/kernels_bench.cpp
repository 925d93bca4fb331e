// CPU ops: cache bytes/s if memory-bound, FLOP/s if compute-bound.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/lay_out_rows.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/parallel.h"
#include "tests/bench/noise_cache.h"
#include "tests/kernels/grouping_cases.h"

namespace lariat::test {
namespace {

constexpr int64_t kHeads = 32, kKvHeads = 4, kHeadDim = 64;
constexpr AttentionParams kShape{.n_heads = kHeads, .scale = 0.125F};

// n tokens after `depth` cached ones; layers take turns; window 0: all keys.
void attend(benchmark::State& state, int64_t n, int64_t depth, size_t sequences = 1, int64_t n_layers = 1,
            int64_t window = 0) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  std::vector<NoiseCache> caches;
  std::vector<StepSequence> parts;
  for (size_t s = 0; s < sequences; ++s) {
    caches.emplace_back(cpu, depth + n, kKvHeads, kHeadDim, n_layers);
    parts.push_back({depth, n, caches.back().pages()});
  }
  const int64_t cols = kHeads * kHeadDim, rows = n * static_cast<int64_t>(sequences);
  const Tensor q(cpu, Rng(2).normals(rows * cols), rows, cols), out(cpu, rows, cols);
  const std::vector<double> inv_freq = frequencies(kHeadDim);
  const Step step{.sequences = parts};
  const Rope rope(cpu, step, rows, std::vector<SequenceRope>(sequences, {inv_freq, 1.0F}), false);
  size_t layer = 0;
  for (auto _ : state) {
    cpu.attention(step, q.view(), causal(rope, window), caches[0].layers()[layer], kShape, out.view());
    layer = (layer + 1) % caches[0].layers().size();
  }
}

// Reads K and V of `depth` tokens.
void AttentionDecode(benchmark::State& state) {
  const int64_t depth = state.range(1);
  attend(state, 1, depth);
  state.SetBytesProcessed(state.iterations() * (depth + 1) * kKvHeads * kHeadDim * 2 * 2);
}
BENCHMARK(AttentionDecode)->ArgsProduct({{1, 2}, {512, 8192, 32768}})->UseRealTime();

// 22 layers, as in a model: no processor cache keeps them.
void AttentionDecodeInTurn(benchmark::State& state) {
  const int64_t depth = state.range(1);
  attend(state, 1, depth, 1, 22);
  state.SetBytesProcessed(state.iterations() * (depth + 1) * kKvHeads * kHeadDim * 2 * 2);
}
BENCHMARK(AttentionDecodeInTurn)->ArgsProduct({{1, 2}, {8192, 32768}})->UseRealTime();

void AttentionDecodeBatch(benchmark::State& state) {
  const int64_t depth = state.range(1);
  attend(state, 1, depth, 8);
  state.SetBytesProcessed(state.iterations() * 8 * (depth + 1) * kKvHeads * kHeadDim * 2 * 2);
}
BENCHMARK(AttentionDecodeBatch)->ArgsProduct({{1, 2}, {512, 8192}})->UseRealTime();

// Each token sees at most w keys: 4 head_dim FLOP per pair and head.
void prefill(benchmark::State& state, int64_t n, int64_t w) {
  attend(state, n, 0, 1, 1, w);
  const double pairs = w == 0 ? static_cast<double>(n * (n + 1)) / 2
                              : static_cast<double>(w * (w + 1)) / 2 + static_cast<double>((n - w) * w);
  const double flop = 4.0 * pairs * kHeads * kHeadDim;
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
}
void AttentionPrefill(benchmark::State& state) { prefill(state, state.range(1), 0); }
BENCHMARK(AttentionPrefill)->ArgsProduct({{1, 2}, {512, 2048, 8192}})->UseRealTime();
void AttentionWindowedPrefill(benchmark::State& state) { prefill(state, state.range(1), state.range(2)); }
BENCHMARK(AttentionWindowedPrefill)
    ->ArgsProduct({{1, 2}, {8192}, {128, 256, 512, 1024, 4096}})
    ->UseRealTime();

// m rows of x times [n, k].
void multiply_in(benchmark::State& state, int64_t m, int64_t n, int64_t k) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const auto dtype = static_cast<DType>(state.range(1));
  std::vector<float> values(static_cast<size_t>(n * k));
  Rng rng(5);
  for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5);
  const Tensor host(cpu, values, n, k, is_quantized(dtype) ? DType::kBF16 : dtype);
  const Loaded weight = load_one(cpu, host.view(), dtype);
  const Matrix& w = weight.matrix;
  const Tensor x(cpu, Rng(6).normals(m * k), m, k), out(cpu, m, n);
  const DType compute = dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  for (auto _ : state) multiply(cpu, x.view(), w, {}, compute, out.view());
  state.SetLabel(std::string(name_of(dtype)));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(stored_bytes(w)));
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}
// Reads the weights, larger than any cache, once.
void MatmulDecode(benchmark::State& state) { multiply_in(state, 1, 40960, 2048); }
BENCHMARK(MatmulDecode)->ArgsProduct({{1, 2}, {0, 1, 2, 3, 4}})->UseRealTime();
// The second argument is the number of rows.
void MatmulFormats(benchmark::State& state) {
  const FormatCase c = format_cases()[static_cast<size_t>(state.range(2))];
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t m = state.range(1), n = m == 1 ? 65536 : 5632, k = 2048;
  const HostWeight row = random_codes(c.format, 16, k),
                   codes(c.format, n, k, [&](int64_t r, const CodeRow&to) { row.read_row(r % 16, to); });
  const Loaded w = load_codes(cpu, codes);
  const Tensor x(cpu, Rng(6).normals(m * k), m, k), out(cpu, m, n);
  for (auto _ : state) multiply(cpu, x.view(), w.matrix, {}, DType::kF32, out.view());
  state.SetLabel(c.name);
  state.SetItemsProcessed(state.iterations() * m * n * k);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(stored_bytes(w.matrix)));
}
BENCHMARK(MatmulFormats)
    ->ArgsProduct({{1, 2}, {1, 512}, benchmark::CreateDenseRange(0, 31, 1)})
    ->UseRealTime();

void LayOut(benchmark::State& state) {
  const FormatCase c = format_cases()[static_cast<size_t>(state.range(0))];
  const int64_t n = 256, k = 4096;
  const HostWeight codes(c.format, n, k, [&](int64_t, const CodeRow& to) {
    const QuantLayout layout(c.format, n, k);
    std::fill(to.codes, to.codes + k, uint8_t{5});
    std::fill(to.scales, to.scales + layout.scales(), 1.0F);
    if (c.format.grouping.minimum) std::fill(to.minima, to.minima + layout.scales(), 1.0F);
    if (layout.nested()) std::fill(to.outer, to.outer + 2 * layout.blocks(), 1.0F);
  });
  CpuBackend cpu(1);
  const bool floats = state.range(1) != 0;
  const WeightFormat format = floats ? WeightFormat(DType::kBF16) : c.format;
  const Buffer memory = cpu.allocate(stored_bytes(Matrix(nullptr, format, n, k)));
  for (auto _ : state) cpu::lay_out_rows(codes, 0, Matrix(memory.data(), format, n, k), 1);
  state.SetLabel(std::string(c.name) + (floats ? " -> bf16" : ""));
  state.SetItemsProcessed(state.iterations() * n * k);
}
BENCHMARK(LayOut)->ArgsProduct({{0, 1, 7, 9, 28, 30}, {0, 1}});

void MatmulPrefill(benchmark::State& state) { multiply_in(state, 512, 5632, 2048); }
BENCHMARK(MatmulPrefill)->ArgsProduct({{1, 2}, {0, 1, 2, 3, 4}})->UseRealTime();

// Four parallel streams, a few hundred bytes at a time: the fastest memory read here.
uint64_t read_all(const void* data, size_t bytes) {
  using Vector [[gnu::vector_size(32), gnu::aligned(8), gnu::may_alias]] = uint64_t;
  constexpr size_t kStreams = 4, kVectors = 8;
  const size_t run = bytes / sizeof(Vector) / kStreams / kVectors * kVectors;
  const auto* from = static_cast<const Vector*>(data);
  Vector sum = {}, other = {};
  for (size_t i = 0; i < run; i += kVectors) {
    for (size_t s = 0; s < kStreams; ++s) {
      for (size_t j = 0; j < kVectors; j += 2) {
        sum += from[s * run + i + j];
        other += from[s * run + i + j + 1];
      }
    }
  }
  sum += other;
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// Alternates a one-row product with a read of the same bytes on equal threads; they exceed the caches.
// of_read: median ratio of their speeds, independent of other load.
constexpr int64_t kReadBytes = int64_t{160} << 20;
void MatmulDecodeBesideRead(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  const auto dtype = static_cast<DType>(state.range(1));
  const int64_t k = 2048, bytes = static_cast<int64_t>(stored_bytes(Matrix(nullptr, dtype, 1024, k)));
  const int64_t n = kReadBytes / bytes * 1024;
  CpuBackend cpu(threads);
  const Tensor host(cpu, Rng(5).normals(n * k), n, k, is_quantized(dtype) ? DType::kBF16 : dtype);
  const Loaded weight = load_one(cpu, host.view(), dtype);
  const Tensor x(cpu, Rng(6).normals(k), 1, k), out(cpu, 1, n);
  const DType compute = dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  const size_t share = stored_bytes(weight.matrix) / static_cast<size_t>(threads) / 64 * 64;
  const auto seconds = [](const auto& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<double> ratios;
  for (auto _ : state) {
    const double read = seconds([&] {
      for_tasks(threads, threads, [&](int64_t part, int) {
        const char* mine = static_cast<const char*>(weight.matrix.data) + static_cast<size_t>(part) * share;
        benchmark::DoNotOptimize(read_all(mine, share));
      });
    });
    const double product = seconds([&] { multiply(cpu, x.view(), weight.matrix, {}, compute, out.view()); });
    ratios.push_back(read / product);
    state.SetIterationTime(product);
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<int64_t>(ratios.size() / 2), ratios.end());
  state.counters["of_read"] = ratios[ratios.size() / 2];
  state.SetLabel(std::string(name_of(dtype)));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(stored_bytes(weight.matrix)));
}
BENCHMARK(MatmulDecodeBesideRead)->ArgsProduct({{1, 2}, {0, 1, 2, 3, 4}})->UseManualTime();

// Eight of many experts of [n, 2048], in total as large as MatmulDecode's weights; others each time.
void ExpertsDecode(benchmark::State& state) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const auto dtype = static_cast<DType>(state.range(1));
  const int64_t n = state.range(2), k = 2048, n_chosen = 8;
  const Tensor host(cpu, Rng(5).normals(n * k), n, k, dtype == DType::kF16 ? DType::kBF16 : DType::kF16);
  std::vector<Loaded> weights;
  Weight experts{{}, dtype == DType::kBF16 ? DType::kBF16 : DType::kF32};
  while (experts.rows() < 40960) {
    weights.push_back(load_one(cpu, host.view(), dtype));  // converted: a copy
    experts.blocks.push_back({weights.back().matrix, {}});
  }
  const Tensor x(cpu, Rng(6).normals(k), 1, k), out(cpu, n_chosen, n), shares(cpu, 1, n_chosen);
  std::vector<int32_t> chosen = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto n_experts = static_cast<int32_t>(experts.blocks.size());
  for (auto _ : state) {
    cpu.grouped_linear(x.view(), experts, {chosen.data(), shares.view()}, out.view());
    for (int32_t& e : chosen) e = (e + 8) % n_experts;
  }
  state.SetLabel(std::string(name_of(dtype)));
  state.SetBytesProcessed(state.iterations() * n_chosen *
                          static_cast<int64_t>(stored_bytes(experts.blocks[0].w)));
}
BENCHMARK(ExpertsDecode)->ArgsProduct({{1, 2}, {1, 2, 3, 4}, {640, 5120}})->UseRealTime();

void QuantizeWeights(benchmark::State& state) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const auto dtype = static_cast<DType>(state.range(1));
  const int64_t rows = 2048, cols = 2048;
  const Tensor host(cpu, Rng(7).normals(rows * cols), rows, cols, DType::kBF16);
  Matrix copy(nullptr, dtype, rows, cols);
  const Buffer memory = cpu.allocate(stored_bytes(copy));
  copy.data = memory.data();
  for (auto _ : state) cpu::quantize_tiles(host.view(), copy, 0, QuantLayout(copy).tiles());
  state.SetLabel(std::string(name_of(dtype)));
  state.SetItemsProcessed(state.iterations() * rows * cols);
}
BENCHMARK(QuantizeWeights)->ArgsProduct({{1}, {3, 4}});

void QkvToCache(benchmark::State& state) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t n = state.range(1), cols = kKvHeads * kHeadDim;
  const NoiseCache cache(cpu, n, kKvHeads, kHeadDim);
  const Rope rope(cpu, 0, n, frequencies(kHeadDim), false);
  const StepSequence sequence{0, n, cache.pages()};
  const Step step{.sequences = {&sequence, 1}};
  const Tensor k(cpu, Rng(2).normals(n * cols), n, cols), v(cpu, Rng(3).normals(n * cols), n, cols);
  for (auto _ : state) cpu.qkv_to_cache(step, {}, k.view(), v.view(), {}, rope.table, cache.layer());
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(QkvToCache)->ArgsProduct({{1, 2}, {1, 512}})->UseRealTime();

// Reads and writes every key once.
void RerotateKeys(benchmark::State& state) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t positions = state.range(1), n_layers = 8;
  const NoiseCache cache(cpu, positions, kKvHeads, kHeadDim, n_layers);
  const std::vector<double> before = frequencies(kHeadDim), after = frequencies(kHeadDim, 1e6);
  const KeyRotation rotation{cache.pages(), positions, {before}, {after}};
  for (auto _ : state) cpu.rerotate_keys({&rotation, 1}, cache.layers(), false);
  state.SetBytesProcessed(state.iterations() * n_layers * positions * kKvHeads * kHeadDim * 2 * 2);
}
BENCHMARK(RerotateKeys)->ArgsProduct({{1, 2}, {2048, 16384}})->UseRealTime();

void normalise(benchmark::State& state, bool centred) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t n = state.range(1), cols = 4096;
  const Tensor x(cpu, Rng(3).normals(n * cols), n, cols), w(cpu, Rng(4).normals(cols), 1, cols);
  const Tensor out(cpu, n, cols);
  const Norm norm{w.view(), centred ? w.view() : Matrix(), 1e-5F, centred};
  for (auto _ : state) cpu.norm(x.view(), norm, out.view());
  state.SetBytesProcessed(state.iterations() * n * cols * 4 * 2);
}
void RmsNorm(benchmark::State& state) { normalise(state, false); }
BENCHMARK(RmsNorm)->ArgsProduct({{1, 2}, {1, 512}})->UseRealTime();
void LayerNorm(benchmark::State& state) { normalise(state, true); }
BENCHMARK(LayerNorm)->ArgsProduct({{1, 2}, {1, 512}})->UseRealTime();

void Glu(benchmark::State& state) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t n = state.range(1), cols = 11008;
  // silu(1) * (1 + 1/e) = 1: values do not drift towards denormals.
  const std::vector<float> ones(static_cast<size_t>(n * cols), 1.0F), inverse(ones.size(), 1.36787944F);
  const Tensor gate(cpu, ones, n, cols), up(cpu, inverse, n, cols);
  for (auto _ : state) cpu.glu(gate.view(), up.view(), Activation::kSilu, gate.view());
  state.SetBytesProcessed(state.iterations() * n * cols * 4 * 3);
}
BENCHMARK(Glu)->ArgsProduct({{1, 2}, {1, 512}})->UseRealTime();

void RopeTable(benchmark::State& state) {
  CpuBackend cpu(1);
  const int64_t n = state.range(0);
  const std::vector<double> inv_freq = frequencies(kHeadDim);
  const SequenceRope frequencies_of_all{inv_freq, 1.0F};
  const Rope rope(cpu, 5000, n, inv_freq, false);
  const StepSequence sequence{5000, n};
  const Step step{.sequences = {&sequence, 1}};
  for (auto _ : state) cpu.rope_table(step, {&frequencies_of_all, 1}, rope.table);
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(RopeTable)->Arg(1)->Arg(512);

// Draws one token per row of `cols` logits, with the spread of a language model's.
void Draw(benchmark::State& state) {
  struct {
    const char* name;
    Sampling how;
  } const kinds[] = {{"top-p 0.95", {0.8F, 0, 0.95F}}, {"top-k 40", {0.8F, 40}}, {"temperature", {0.8F}}};
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t rows = state.range(1), cols = state.range(2);
  const auto& kind = kinds[static_cast<size_t>(state.range(3))];
  const Tensor x(cpu, Rng(3).normals(rows * cols, 3.0F), rows, cols);
  const std::vector<Sampling> how(static_cast<size_t>(rows), kind.how);
  std::vector<double> uniforms(how.size());
  Rng rng(4);
  for (auto _ : state) {
    for (double& u : uniforms) u = rng.uniform();
    cpu.draw(x.view(), how, uniforms);
  }
  state.SetLabel(kind.name);
  state.SetItemsProcessed(state.iterations() * rows * cols);
}
BENCHMARK(Draw)->ArgsProduct({{1, 2}, {1, 8}, {32000, 151936, 262144}, {0, 1, 2}})->UseRealTime();

// Peak memory read, for comparison.
void ReadMemory(benchmark::State& state) {
  CpuBackend cpu(static_cast<int>(state.range(0)));
  const int64_t rows = 64, cols = 1 << 20;
  const Tensor x(cpu, std::vector<float>(static_cast<size_t>(rows * cols), 1.0F), rows, cols);
  for (auto _ : state) cpu.draw(x.view(), {}, {});
  state.SetBytesProcessed(state.iterations() * rows * cols * 4);
}
BENCHMARK(ReadMemory)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace lariat::test

BENCHMARK_MAIN();
