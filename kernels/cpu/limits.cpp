#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/container.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/error.h"
#include "kernels/limits.h"
#include "kernels/team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/limits.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// Reads `bytes` bytes in parallel runs of equal size.
uint64_t Read(const uint64_t* data, size_t bytes, size_t streams) {
  const hn::ScalableTag<uint64_t> d;
  constexpr size_t kStep = 256 / sizeof(uint64_t);
  const size_t run = bytes / sizeof(uint64_t) / streams / kStep * kStep;
  auto sum = hn::Zero(d), other = hn::Zero(d);
  for (size_t i = 0; i < run; i += kStep) {
    for (size_t s = 0; s < streams; ++s) {
      const uint64_t* from = data + s * run + i;
      for (size_t j = 0; j < kStep; j += 2 * hn::Lanes(d)) {
        sum = hn::Add(sum, hn::LoadU(d, from + j));
        other = hn::Add(other, hn::LoadU(d, from + j + hn::Lanes(d)));
      }
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, other)));
}

// bf16_multiply_adds (gemm.h) in f32.
double MultiplyAdds(int64_t repetitions, float* sink) {
  constexpr int kSums = 12;  // hides FMA latency and fits 16 registers
  const F32 d;
  VF32 sum[kSums], x = hn::Set(d, 1e-3F), y = hn::Set(d, 1e-4F);
  for (auto& s : sum) s = hn::Zero(d);
  for (int64_t t = 0; t < repetitions; ++t) {
    for (auto& s : sum) s = hn::MulAdd(s, x, y);  // a dependency chain
  }
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum[0]));
  return 2.0 * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(repetitions);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(Read);
HWY_EXPORT(MultiplyAdds);

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

volatile uint64_t read_sink;  // prevents optimisation of its inputs
volatile float sum_sink;

double measure_read_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{1100}
                            << 20;  // far beyond any cache; no power of two: streams must not share a bank
  void* data = container_limits().free_memory < kBytes
                   ? MAP_FAILED  // touching the pages would end the process
                   : mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw Error("read bandwidth: no memory for the measurement; free 1.1 GiB");
  madvise(data, kBytes, MADV_HUGEPAGE);
  std::memset(data, 1, kBytes);  // untouched pages would all map to the zero page
  const size_t share = kBytes / static_cast<size_t>(threads) / 4096 * 4096;
  double best = 0;
  for (int run = 0; run < 16; ++run) {
    const double start = now();
    run_team(threads, [&](int worker) {
      const char* mine = static_cast<char*>(data) + share * static_cast<size_t>(worker);
      read_sink =
          HWY_DYNAMIC_DISPATCH(Read)(reinterpret_cast<const uint64_t*>(mine), share, size_t{1} << run % 4);
    });
    best = std::max(best, static_cast<double>(share) * threads / (now() - start));
  }
  munmap(data, kBytes);
  return best;
}

// Operations per second in registers, by the widest instruction of a matrix product of this dtype (f16
// weights: f32; quantized: bytes, or bf16 on tiles).
double measure_gemm_peak(DType dtype, int threads) {
  constexpr int64_t kRepetitions = 1000000;
  const bool amx = cpu::has_amx_bf16() && (dtype == DType::kBF16 || is_quantized(dtype));
  const bool bf16 = dtype == DType::kBF16 && cpu::has_avx512_bf16();
  const bool bytes = is_quantized(dtype) && cpu::has_avx512_vnni();
  const auto multiply_adds = amx     ? cpu::amx_multiply_adds
                             : bf16  ? cpu::bf16_multiply_adds
                             : bytes ? cpu::vnni_multiply_adds
                                     : HWY_DYNAMIC_DISPATCH(MultiplyAdds);
  double best = 0;
  for (int run = 0; run < 8; ++run) {
    std::atomic<double> operations = 0;
    const double start = now();
    run_team(threads, [&](int) {
      float sink = 0;
      operations += multiply_adds(kRepetitions, &sink);
      sum_sink = sink;
    });
    best = std::max(best, operations / (now() - start));
  }
  return best;
}

}  // namespace

double cpu::bf16_dot_speedup() {
  constexpr int64_t kRepetitions = 5000;
  double best[2] = {};
  for (int run = 0; run < 16; ++run) {
    float sink = 0;
    const double start = now();
    const double operations = run % 2 == 0 ? HWY_DYNAMIC_DISPATCH(MultiplyAdds)(kRepetitions, &sink)
                                           : cpu::bf16_multiply_adds(kRepetitions, &sink);
    best[run % 2] = std::max(best[run % 2], operations / (now() - start));
    sum_sink = sink;
  }
  return best[1] / best[0];
}

Limits measure_cpu_limits(int threads, DType dtype) {
  return {measure_read_bandwidth(threads), measure_gemm_peak(dtype, threads)};
}

}  // namespace lariat
#endif
