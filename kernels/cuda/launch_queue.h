#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "kernels/cuda/runtime.h"

// A decode step is a hundred small launches whose queueing costs more than they take. The launches of the ops
// that make up a layer are therefore collected first. When the same list comes a second time in a row, it is
// recorded as a CUDA graph, and queued as one from then on. What changes at every step lies in device memory
// (cuda::Step), so a list says all there is to know: kernels, grids and arguments.
namespace lariat::cuda {

struct QueuedLaunch {
  // launches `kernel` with its packed arguments
  using Run = void (*)(const QueuedLaunch& queued, const std::byte* arguments, Stream stream);

  Run run = nullptr;
  void (*kernel)() = nullptr;
  std::array<unsigned, 3> grid = {}, block = {};
  size_t shared_bytes = 0;
  size_t arguments = 0;  // where they begin, of all the list's

  bool operator==(const QueuedLaunch&) const = default;
};

// A stream, and the launches that are not on it yet.
class LaunchQueue {
 public:
  // How lists worth recording were run: launch by launch, recorded (and then run), or from the record alone.
  struct Counts {
    int64_t direct = 0, recorded = 0, replayed = 0;
  };

  LaunchQueue() : stream_(stream_create()) {}
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;
  ~LaunchQueue();

  // Puts a launch at the end, and returns where its `bytes` bytes of arguments go.
  std::byte* add(QueuedLaunch launch, size_t bytes);

  // Puts everything collected on the stream. Throws Error; what was collected is gone then.
  void flush();
  // The same where nothing can be thrown: the next flush() throws what this one could not.
  void flush_noexcept() noexcept;
  void drop() noexcept { collected_.clear(); }  // forgets what was collected

  // The stream, behind everything collected. The only way to it, so that nothing overtakes.
  Stream flushed() {
    flush();
    return stream_;
  }

  const Counts& counts() const { return counts_; }

 private:
  struct List {
    std::vector<QueuedLaunch> launches;
    std::vector<std::byte> arguments;

    bool operator==(const List&) const = default;
    void clear() {
      launches.clear();
      arguments.clear();
    }
  };
  void run(const List& list);
  void record(const List& list);

  Stream stream_ = nullptr;
  List collected_, running_;
  List last_;      // of those worth recording
  List recorded_;  // what graph_ does
  Graph graph_ = nullptr;
  Counts counts_;
  std::exception_ptr failure_;
};

}  // namespace lariat::cuda
