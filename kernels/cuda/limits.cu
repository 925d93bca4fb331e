#include <algorithm>
#include <vector>

#include "kernels/convert.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"

namespace lariat {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 256;
constexpr size_t kReadBytesPerMultiprocessor = size_t{4} << 20;  // in total far beyond any L2
constexpr int64_t kSidePerMultiprocessor = 64;                   // of square matrices: 8448 for 132
constexpr size_t kNoise = size_t{1} << 16;                       // distinct values, then repeated
constexpr int kRepeats = 5;

// Grid: eight blocks per multiprocessor; every thread has four 16-byte loads in flight. Bound by memory.
// `sink` is written in a case that never occurs but that compilers cannot exclude.
__global__ void read_kernel(const uint4* data, int64_t count, uint32_t* sink) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  uint32_t seen = 0;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 v = load16_streaming(data + i);
    seen |= v.x | v.y | v.z | v.w;
  }
  if (seen != 0) *sink = seen;
}

// Shortest of several runs, in seconds; 0 without a clock (SIMT shim).
template <class F>
double best_seconds(Stream stream, F&& f) {
  const Event begin = event_create(), end = event_create();
  f();  // warm-up
  double best = 0.0;
  for (int i = 0; i < kRepeats && (i == 0 || best > 0.0); ++i) {
    event_record(begin, stream);
    f();
    event_record(end, stream);
    event_synchronize(end);
    const double seconds = event_seconds(begin, end);
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  event_destroy(begin);
  event_destroy(end);
  return best;
}

// Fills `data` with values in (-1, 1): products of zeros need less power and are faster.
void fill_noise(Backend& backend, const Buffer& data, DType dtype) {
  const size_t bytes = std::min(data.bytes(), kNoise * size_of(dtype));
  std::vector<std::byte> noise(bytes);
  uint64_t state = 1;
  for (size_t i = 0; i < bytes / size_of(dtype); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    store_f32(noise.data(), dtype, static_cast<int64_t>(i),
              static_cast<float>(static_cast<int64_t>(state)) * 0x1p-63F);
  }
  backend.copy_in(data.data(), noise.data(), bytes);
  auto* first = static_cast<std::byte*>(data.data());
  for (size_t done = bytes; done < data.bytes(); done *= 2) {
    backend.copy(first + done, first, std::min(done, data.bytes() - done));
  }
}

double rate(double amount, double seconds) { return seconds > 0.0 ? amount / seconds : 0.0; }

}  // namespace

Limits measure_cuda_limits(Backend& backend, DType dtype) {
  auto& device = static_cast<CudaBackend&>(backend);
  const auto multiprocessors = static_cast<size_t>(device.device_.multiprocessors);
  Limits limits;
  {
    const size_t bytes = kReadBytesPerMultiprocessor * multiprocessors;
    const Buffer data = device.allocate(bytes);
    fill_bytes(data.data(), 0, bytes, device.stream());
    auto* sink = static_cast<uint32_t*>(device.scratch(CudaBackend::Scratch::kResult, sizeof(uint32_t)));
    const double seconds = best_seconds(device.stream(), [&] {
      launch(read_kernel, dim3(8 * to_unsigned(device.device_.multiprocessors)), dim3(kThreads), 0,
             device.stream(), static_cast<const uint4*>(data.data()),
             static_cast<int64_t>(bytes / sizeof(uint4)), sink);
    });
    limits.read_bytes_per_second = rate(static_cast<double>(bytes), seconds);
  }
  const int64_t side = kSidePerMultiprocessor * device.device_.multiprocessors;
  const auto elements = static_cast<size_t>(side * side);
  const Buffer x = device.allocate(elements * size_of(dtype)), w = device.allocate(elements * size_of(dtype));
  const Buffer out = device.allocate(elements * sizeof(float));
  fill_noise(device, x, dtype);
  fill_noise(device, w, dtype);
  const double seconds = best_seconds(device.stream(), [&] {
    cuda::gemm(device.blas(), Matrix(x.data(), dtype, side, side), Matrix(w.data(), dtype, side, side),
               Matrix(out.data(), DType::kF32, side, side));
  });
  limits.flops_per_second = rate(2.0 * static_cast<double>(elements) * static_cast<double>(side), seconds);
  return limits;
}

}  // namespace lariat
