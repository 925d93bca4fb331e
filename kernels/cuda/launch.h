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

// Launching kernels: the host's side of it, and what kernels do whose launches start early (Start,
// runtime.h).
namespace lariat::cuda {

// --- in a kernel: programmatic dependent launch, from sm_90 on (before, all of these are nothing) ---------
// The next launch may start, as soon as every block of this one has said so. It waits for the end of this one
// all the same, so a kernel says it first of all.
__device__ __forceinline__ void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Until all earlier launches are done and what they wrote can be read. Every thread of a kernel that is
// queued (LaunchQueue) comes here, also one that has nothing to do: were there a launch that does not wait,
// the next would wait for that one only. Before it, a thread may read what no launch of the same list writes,
// which is weights, and write nothing.
__device__ __forceinline__ void wait_for_launches() {
#ifndef __CUDACC__
  simt::wait_for_launches();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The two at once, of a kernel that has nothing to do before.
__device__ __forceinline__ void start_in_turn() {
  launch_dependents();
  wait_for_launches();
}

// Asks for the line around an address to be brought to L2: of weights, before the wait.
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

// Puts the launch on the stream, behind all that is there.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream, A&&... args) {
  launch_at(Start::kInOrder, kernel, grid, block, shared_bytes, stream, std::forward<A>(args)...);
}

// Launches what the overload below has packed.
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
    std::memcpy(to, &argument, sizeof(P));  // a struct with the bytes between its members
  } else {
    const P converted(argument);
    std::memcpy(to, &converted, sizeof(P));
  }
  to += sizeof(P);
}

// Queues the launch: it runs when the queue is flushed, with copies of the arguments. The kernel's threads
// call wait_for_launches().
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, LaunchQueue& queue,
            A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...));
  // In launch_packed's tuple an empty one may share its place with another, and is copied over it.
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
