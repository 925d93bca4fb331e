#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/simt/blocks.h"
#include "tests/simt/memory.h"

// CUDA's execution model on the CPU: compiled with -include of this file instead of the CUDA headers, a .cu
// file is plain C++. Blocks run one after the other; a block's threads are fibers that run until a barrier or
// a warp-wide instruction. Undefined behaviour on a GPU is a simt::Fault here:
//   - a thread leaves the kernel while others wait at a barrier, or waits at a different barrier
//   - not all lanes of a mask reach a shuffle, vote or __syncwarp with the same mask
//   - a shuffle reads a lane outside its mask
//   - a launch exceeds a device's threads, blocks or shared memory
//   - a launch's memory is freed before it runs, or belongs to another device
//   - a thread of an early launch ends without waiting
// and, in files compiled with -fsanitize=thread (access_hooks.cpp):
//   - threads of a block touch one shared byte, one writing, with no barrier in between
//   - blocks of a launch write one byte, or one reads another's write, without atomics or an order (blocks.h)
//   - a kernel reads unwritten shared memory, touches host memory, or misses an allocation
//   - host code touches device memory
//   - a thread that has not waited reads an earlier launch's write, or writes device memory (blocks.h)
// Shared arrays are allocated per block, so that AddressSanitizer sees each overrun.
namespace simt {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr Dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr uint64_t count() const { return uint64_t{x} * y * z; }
};

// clang 14 lacks std::source_location.
struct Where {
  const char* file = "";
  unsigned line = 0;
  static constexpr Where current(const char* name = __builtin_FILE(), unsigned number = __builtin_LINE()) {
    return {name, number};
  }
};

// A violation; thrown by launch().
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Blocks and warps run in index order, in reverse or at random: a missing barrier rarely survives all.
// Initially LARIAT_SIMT_ORDER: forward, backward or random:SEED.
enum class Order { kForward, kBackward, kRandom };
void set_order(Order order);
Order order();
void put_in_order(std::vector<uint32_t>& indices, size_t count);  // 0, 1, ... count - 1 in this order
// LARIAT_SIMT_SMS, by default 4, which small shapes fill.
int multiprocessors();
std::string settings();  // in shell syntax

uint64_t gemms();  // cuBLAS products so far

// Recordings fail at the start, at the end, or at the end if a launch starts early.
enum class CaptureFailure { kNone, kBegin, kEnd, kEarly };
void set_capture_failure(CaptureFailure failure);

// Host waits with nothing else queued: a GPU then idles.
uint64_t idle_waits();

inline constexpr unsigned kWarp = 32;
inline constexpr size_t kPayload = 64;  // bytes per lane of a warp-wide instruction

// Valid until the caller's next warp-wide instruction.
struct Lanes {
  alignas(16) unsigned char bytes[kWarp][kPayload];

  template <class T>
  SIMT_UNCHECKED T get(unsigned lane) const {
    T value;
    std::memcpy(&value, bytes[lane], sizeof(T));
    return value;
  }
};

void barrier(const Where& where);
// Waits for every lane in `mask`; `memory` orders shared accesses, like __syncwarp and unlike a shuffle.
const Lanes& exchange(const char* what, unsigned mask, const void* payload, size_t bytes, bool memory,
                      const Where& where);
unsigned lane_id();
[[noreturn]] void fault(const std::string& what);  // ends the launch
[[noreturn]] void fault_outside_mask(const char* what);
bool in_kernel();  // false inside these functions
unsigned thread_index();
void wait_for_launches();                    // kernels/cuda/launch.h
void expect_allocated(const void* address);  // for a prefetch

// Allocated on first use.
void* static_shared(const void* key, size_t bytes);
void* dynamic_shared();

// Completed when its group is waited for. zero_fill: does not read the source.
void copy_async(void* shared_dst, const void* src, size_t bytes, bool zero_fill);
void commit_copies();
void wait_copies(unsigned groups_left_in_flight);

// early: earlier launches may still run.
void run(Dim3 grid, Dim3 block, size_t shared_bytes, bool early, void (*body)(void*), void* params,
         size_t params_bytes);

// Between start_recording() and stop_recording(), launch() only adds to the list.
struct RecordedLaunch {
  std::function<void()> start;
  std::vector<const void*> given;  // given_memory()
  bool early = false;
};
using Recording = std::vector<RecordedLaunch>;
void start_recording();
Recording stop_recording();
Recording* recording();  // null: none

template <class... P, class... A>
void launch(void (*kernel)(P...), Dim3 grid, Dim3 block, size_t shared_bytes, bool early, A&&... args) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> params;
  };
  Call call{kernel, std::tuple<P...>(std::forward<A>(args)...)};
  // Padding may hold the rest of an old address.
  std::vector<const void*> given;
  const auto add = [&]<class T>(T argument) {
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
#endif
    const std::vector<const void*> more = given_memory(&argument, sizeof(argument));
    given.insert(given.end(), more.begin(), more.end());
  };
  std::apply([&](const P&... argument) { (add(argument), ...); }, call.params);
  auto start = [grid, block, shared_bytes, early, call]() mutable {
    run(
        grid, block, shared_bytes, early,
        [](void* p) {
          auto* c = static_cast<Call*>(p);
          std::apply(c->kernel, c->params);
        },
        &call, sizeof(call));
  };
  if (recording() != nullptr) {
    recording()->push_back({start, std::move(given), early});
  } else {
    start();
  }
}

template <class T>
T shuffle(const char* what, unsigned mask, T value, unsigned source, const Where& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  const Lanes& lanes = exchange(what, mask, &value, sizeof(T), false, where);
  if (source >= kWarp) return value;
  if ((mask >> source & 1U) == 0) fault_outside_mask(what);
  return lanes.get<T>(source);
}

}  // namespace simt

using dim3 = simt::Dim3;
inline dim3 threadIdx, blockIdx, blockDim, gridDim;  // set at every switch

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__

#define LARIAT_SHARED(type, name, count) \
  static const char name##_key = 0;      \
  auto& name = *static_cast<type(*)[count]>(simt::static_shared(&name##_key, sizeof(type[count])))
#define LARIAT_DYNAMIC_SHARED(name) auto* const name = static_cast<unsigned char*>(simt::dynamic_shared())

struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline void __syncthreads(simt::Where where = simt::Where::current()) { simt::barrier(where); }
inline void __threadfence() { simt::fence(); }
inline void __syncwarp(unsigned mask = 0xffffffffU, simt::Where where = simt::Where::current()) {
  simt::exchange("__syncwarp", mask, nullptr, 0, true, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, simt::Where where = simt::Where::current()) {
  return simt::shuffle("__shfl_sync", mask, value, static_cast<unsigned>(source) % simt::kWarp, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, simt::Where where = simt::Where::current()) {
  return simt::shuffle("__shfl_xor_sync", mask, value, simt::lane_id() ^ static_cast<unsigned>(lanes), where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, simt::Where where = simt::Where::current()) {
  return simt::shuffle("__shfl_down_sync", mask, value, simt::lane_id() + by, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, simt::Where where = simt::Where::current()) {
  return simt::shuffle("__shfl_up_sync", mask, value, simt::lane_id() - by, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, simt::Where where = simt::Where::current()) {
  const simt::Lanes& lanes =
      simt::exchange("__ballot_sync", mask, &predicate, sizeof(predicate), false, where);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < simt::kWarp; ++lane) {
    if ((mask >> lane & 1U) != 0 && lanes.get<int>(lane) != 0) votes |= 1U << lane;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int predicate, simt::Where where = simt::Where::current()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, simt::Where where = simt::Where::current()) {
  return __ballot_sync(mask, predicate, where) == mask;
}

// Atomic, because fibers are cooperative. Access checks can be disabled only per function.
template <class T>
SIMT_UNCHECKED T atomicAdd(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = static_cast<T>(old + value);
  simt::atomic_done(address);
  return old;
}
template <class T>
SIMT_UNCHECKED T atomicMax(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = old < value ? value : old;
  simt::atomic_done(address);
  return old;
}
template <class T>
SIMT_UNCHECKED T atomicInc(T* address, std::type_identity_t<T> last) {
  const T old = *address;
  *address = old >= last ? 0 : old + 1;
  simt::atomic_done(address);
  return old;
}
template <class T>
SIMT_UNCHECKED T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *address;
  if (old == expected) *address = value;
  simt::atomic_done(address);
  return old;
}
