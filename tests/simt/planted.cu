#include "tests/simt/planted.h"

#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch_queue.h"
#include "kernels/cuda/ptx.cuh"

namespace simt {
namespace {

using namespace lariat;
using namespace lariat::cuda;

template <Bug kBug>
__global__ void sum_kernel(const float* in, float* out, const float* host) {
  LARIAT_SHARED(float, partial, 4);
  LARIAT_SHARED(float, turned, 128);
  LARIAT_DYNAMIC_SHARED(raw);
  auto* staged = reinterpret_cast<float*>(raw);  // 128 floats
  const unsigned t = threadIdx.x, warp = t / 32, lane = t % 32;
  const float* block_in = in + blockIdx.x * 128;

  if (t % 4 == 0) cp_async16(staged + t, block_in + t, true);
  cp_async_commit();
  if (kBug != Bug::kMissingCopyWait && kBug != Bug::kCopyInFlight) cp_async_wait<0>();
  if (kBug == Bug::kCopyInFlight) return;
  if (kBug == Bug::kLeavesBarrier && t == 77) return;
  if (kBug == Bug::kOtherBarrier && t >= 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }

  turned[t] = staged[t];
  if (kBug != Bug::kMissingWarpBarrier) __syncwarp();
  float x = turned[t ^ 1U];
  if (kBug == Bug::kDynamicOverrun && t == 127) x += staged[t + 1];
  if (kBug == Bug::kHostMemory) x += host[0];

  if (kBug == Bug::kDivergentShuffle) {
    if (lane != 5) x += __shfl_xor_sync(kFullWarp, x, 16);
  } else if (kBug == Bug::kShuffleOutsideMask) {
    if (lane < 16) x += __shfl_xor_sync(0x0000ffffU, x, 16);
  } else if (kBug == Bug::kOtherMask) {
    x += __shfl_xor_sync(lane == 0 ? kFullWarp : 0xfffffffeU, x, 1);
  }
  x = warp_sum(x);
  if (lane == 0 && (kBug != Bug::kUnwrittenShared || warp != 3)) partial[warp] = x;
  if (kBug != Bug::kMissingBarrier) __syncthreads();
  const unsigned n = kBug == Bug::kSharedOverrun ? 5 : 4;
  x = 0.0F;
  for (unsigned i = 0; i < n; ++i) x += partial[i];
  if (kBug == Bug::kOverwritten && lane == 0) partial[warp] = 0.0F;
  if (kBug == Bug::kSameBytes) out[t] = x;
  if (kBug == Bug::kReadsOtherBlock) x += 0.0F * out[(blockIdx.x + 1) % gridDim.x * 128 + t];
  out[blockIdx.x * 128 + t + (kBug == Bug::kDeviceOverrun && blockIdx.x == 2 ? 1 : 0)] = x;
}

// The last block sums all parts.
template <Bug kBug>
__global__ void last_block_kernel(float* parts, unsigned* finished, float* out) {
  LARIAT_SHARED(unsigned, number, 1);
  const unsigned t = threadIdx.x, i = blockIdx.x * 32 + t;
  if (kBug != Bug::kCountsTooEarly) parts[i] = 1.0F;
  __syncthreads();
  if (t == 0) {
    if (kBug != Bug::kMissingRelease) __threadfence();
    number[0] = atomicInc(finished, gridDim.x - 1);
    if (kBug != Bug::kMissingAcquire) __threadfence();
  }
  if (kBug == Bug::kCountsTooEarly) parts[i] = 1.0F;
  __syncthreads();
  if (number[0] != gridDim.x - 1) return;
  float x = 0.0F;
  for (unsigned block = 0; block < gridDim.x; ++block) x += parts[block * 32 + t];
  x = warp_sum(x);
  if (t == 0) out[0] = x;
}

struct Memory {
  void* data;
  explicit Memory(size_t bytes) : data(device_malloc(bytes)) {}
  ~Memory() { device_free(data); }
};

// A launch must restore the counter.
template <Bug kBug>
void run_last_block() {
  constexpr unsigned kBlocks = 5, kFloats = kBlocks * 32 + 1;
  const Memory memory((kFloats + 1) * sizeof(float));
  auto* const parts = static_cast<float*>(memory.data);
  auto* const finished = reinterpret_cast<unsigned*>(parts + kFloats);
  fill_bytes(finished, 0, sizeof(unsigned), nullptr);
  for (int i = 0; i < 2; ++i) {
    float sum = 0.0F;
    cuda::launch(last_block_kernel<kBug>, dim3(kBlocks), dim3(32), 0, nullptr, parts, finished,
                 parts + kFloats - 1);
    copy_to_host(&sum, parts + kFloats - 1, sizeof(sum), nullptr);
    if (sum != kBlocks * 32.0F) throw std::runtime_error("wrong sum");
  }
}

template <Bug kBug>
void run_sum() {
  constexpr unsigned kBlocks = 3;
  std::vector<float> host(kBlocks * 128, 1.0F);
  const size_t bytes = host.size() * sizeof(float);
  const Memory in(bytes), out(bytes);
  copy_to_device(in.data, host.data(), bytes, nullptr);
  cuda::launch(sum_kernel<kBug>, dim3(kBlocks), dim3(128), 128 * sizeof(float), nullptr,
               static_cast<const float*>(in.data), static_cast<float*>(out.data), host.data());
  copy_to_host(host.data(), out.data, bytes, nullptr);
  for (float x : host) {
    if (x != 128.0F) throw std::runtime_error("wrong sum");
  }
}

__global__ void store_kernel(float* to) {
  start_in_turn();
  to[threadIdx.x] = 1.0F;
}

// out = weights * x in one block.
template <Bug kBug>
__global__ void early_kernel(const float* weights, const float* x, float* out, unsigned* count) {
  LARIAT_SHARED(float, staged, 32);
  const unsigned t = threadIdx.x;
  launch_dependents();
  prefetch_l2(weights + (kBug == Bug::kEarlyPrefetch ? 4096 : t));
  const float weight = weights[t];
  float early = 0.0F;
  if (kBug == Bug::kEarlyRead || kBug == Bug::kEarlyReadNeverWaits) early = x[t];
  if (kBug == Bug::kEarlyWrite) out[t] = weight;
  if (kBug == Bug::kEarlyCopy && t % 4 == 0) cp_async16(staged + t, x + t, true);
  if (kBug == Bug::kEarlyAtomic) atomicAdd(count, 1U);
  if (kBug == Bug::kEarlyNeverWaits || (kBug == Bug::kEarlyOneNeverWaits && t == 7)) return;
  if (kBug != Bug::kEarlyReadNeverWaits) wait_for_launches();
  cp_async_wait<0>();
  out[t] = weight * x[t] + 0.0F * early;
}

// Tests the third launch; the first wrote x.
template <Bug kBug>
void run_early() {
  float last = 0.0F;
  const Memory memory(4 * 32 * sizeof(float));
  auto* const weights = static_cast<float*>(memory.data);
  float *const x = weights + 32, *const out = x + 32, *const other = out + 32;
  LaunchQueue queue(0);
  const auto store = [&](float* to) { cuda::launch(store_kernel, dim3(1), dim3(32), 0, queue, to); };
  store(weights);
  if (kBug != Bug::kEarlyNewWeights) queue.flush();
  store(x);
  store(other);
  cuda::launch(early_kernel<kBug>, dim3(1), dim3(32), 0, queue, static_cast<const float*>(weights),
               static_cast<const float*>(x), out, reinterpret_cast<unsigned*>(other));
  copy_to_host(&last, out + 31, sizeof(last), queue.flushed());
  if (last != 1.0F) throw std::runtime_error("wrong product");
}

template <Bug kBug>
void run_one() {
  if constexpr (kBug >= Bug::kEarly) {
    run_early<kBug>();
  } else if constexpr (kBug >= Bug::kLastBlock) {
    run_last_block<kBug>();
  } else {
    run_sum<kBug>();
  }
}

template <size_t... kBugs>
constexpr auto runs(std::index_sequence<kBugs...>) {
  return std::array{run_one<static_cast<Bug>(kBugs)>...};
}

}  // namespace

void free_too_early(bool recorded) {
  LaunchQueue queue(0);
  void* memory = device_malloc(128);
  const auto queue_launches = [&] {
    for (int i = 0; i < 8; ++i) {  // enough for a record
      cuda::launch(store_kernel, dim3(1), dim3(32), 0, queue, static_cast<float*>(memory));
    }
  };
  for (int i = 0; recorded && i < 2; ++i) queue_launches(), queue.flush();
  queue_launches();
  cuda::device_free(memory);
  queue.flush();
}

void run_planted(Bug bug) {
  runs(std::make_index_sequence<static_cast<size_t>(Bug::kCount)>())[static_cast<size_t>(bug)]();
}

}  // namespace simt
