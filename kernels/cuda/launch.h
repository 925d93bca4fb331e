#pragma once
#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/cuda/launch_queue.h"
#include "kernels/cuda/runtime.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

// Kernel launches, and device functions for kernels that start early (Start, runtime.h).
namespace lariat::cuda {

// --- in a kernel: programmatic dependent launch, from sm_90 on (no-ops on older devices) -----------------
// Lets the next launch start once every block has called this. The next launch still waits for this launch's
// end, so kernels call this first.
__device__ __forceinline__ void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until all earlier launches are done and their writes are visible. Every thread of a queued kernel
// must call this, even without work: otherwise the next launch would wait for this launch only. Before the
// wait, a thread may read only data that no launch of the list writes (weights), and write nothing.
__device__ __forceinline__ void wait_for_launches() {
#ifndef __CUDACC__
  simt::wait_for_launches();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Both calls, for a kernel without work before the wait.
__device__ __forceinline__ void start_in_turn() {
  launch_dependents();
  wait_for_launches();
}

// Prefetches a line of weights to L2, before the wait.
inline constexpr int kLineBytes = 128;

__device__ __forceinline__ void prefetch_l2(const void* address) {
#ifndef __CUDACC__
  simt::expect_allocated(address);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
#endif
}

// --- on the host -----------------------------------------------------------------------------------------
template <class... P, class... A>
void launch_at(Start start, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream,
               A&&... args) {
#ifdef __CUDACC__
  std::tuple<P...> arguments(P(std::forward<A>(args))...);
  std::apply(
      [&](P&... argument) {
        void* addresses[] = {&argument...};
        launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream, start,
                      addresses);
      },
      arguments);
#else
  static_cast<void>(stream);
  simt::launch(kernel, grid, block, shared_bytes, start == Start::kEarly, P(std::forward<A>(args))...);
#endif
}

// Launches after all earlier work on the stream.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream, A&&... args) {
  launch_at(Start::kInOrder, kernel, grid, block, shared_bytes, stream, std::forward<A>(args)...);
}

// Launches with the arguments packed by the overload below.
template <class... P>
void launch_packed(const QueuedLaunch& queued, const std::byte* packed, Stream stream, Start start) {
  std::tuple<P...> arguments;
  std::apply(
      [&](P&... argument) {
        ((std::memcpy(&argument, packed, sizeof(P)), packed += sizeof(P)), ...);
        launch_at(start, reinterpret_cast<void (*)(P...)>(queued.kernel),
                  dim3(queued.grid[0], queued.grid[1], queued.grid[2]),
                  dim3(queued.block[0], queued.block[1], queued.block[2]), queued.shared_bytes, stream,
                  argument...);
      },
      arguments);
}

template <class P, class A>
void pack(std::byte*& to, const A& argument) {
  if constexpr (std::is_same_v<P, A>) {
    std::memcpy(to, &argument, sizeof(P));  // a struct with its padding
  } else {
    const P converted(argument);
    std::memcpy(to, &converted, sizeof(P));
  }
  to += sizeof(P);
}

// Queues a launch with copies of its arguments. The kernel's threads must call wait_for_launches().
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, LaunchQueue& queue,
            A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...));
  // In launch_packed's tuple, an empty argument may share another's address and would overwrite it.
  static_assert((!std::is_empty_v<P> && ...));
  std::byte* to = queue.add({launch_packed<P...>,
                             reinterpret_cast<void (*)()>(kernel),
                             {grid.x, grid.y, grid.z},
                             {block.x, block.y, block.z},
                             shared_bytes},
                            (sizeof(P) + ...));
  (pack<P>(to, args), ...);
}

}  // namespace lariat::cuda
