#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime.h"

// A decode step is a hundred small launches whose queueing costs more than they take. The launches of the ops
// that make up a layer are therefore collected first. When the same list comes a second time in a row, it is
// recorded as a CUDA graph, and queued as one from then on. What changes at every step lies in device memory
// (DeviceStep), so a list says all there is to know: kernels, grids and arguments.
//
// Launches of a list start early (Start) but for its first, which all before the list are done for. So what
// no launch of the list writes, weights above all, its kernels may read before they wait for those before
// them.
namespace lariat::cuda {

struct QueuedLaunch {
  // launches `kernel` with its packed arguments
  using Run = void (*)(const QueuedLaunch& queued, const std::byte* arguments, Stream stream, Start start);

  Run run = nullptr;
  void (*kernel)() = nullptr;
  std::array<unsigned, 3> grid = {}, block = {};
  size_t shared_bytes = 0;
  size_t arguments = 0;  // where they begin, of all the list's

  bool operator==(const QueuedLaunch&) const = default;
};

// A stream of one device, and the launches that are not on it yet.
class LaunchQueue {
 public:
  // How lists worth recording were run: launch by launch, recorded (and then run), or from the record alone.
  struct Counts {
    int64_t direct = 0, recorded = 0, replayed = 0;
    size_t launches = 0;  // in the last of them
  };

  using Warn = std::function<void(const std::string&)>;

  // `device` is open. Where nothing can be recorded, launches are queued one by one, and `warn` hears it
  // once. start: of all launches of a list but the first.
  explicit LaunchQueue(int device, Warn warn = {}, Start start = Start::kEarly)
      : device_(device), warn_(std::move(warn)), start_(start), stream_(stream_create()) {}
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;
  ~LaunchQueue();

  // Puts a launch at the end, and returns where its `bytes` bytes of arguments go.
  std::byte* add(QueuedLaunch launch, size_t bytes);

  // Puts everything collected on the stream, and makes the device the calling thread's. Throws Error; what
  // was collected is gone then.
  void flush();
  // The same where nothing can be thrown: the next flush() throws what this one could not.
  void flush_noexcept() noexcept;
  void drop() noexcept { collected_.clear(); }  // forgets what was collected
  // Before memory is freed: what was collected is put on the stream, and a record that was given some of the
  // memory is destroyed. (It would be replayed only after the same launches again, with addresses that hold
  // again; but no graph is to hold an address that does not.)
  void let_go(const void* data, size_t bytes) noexcept;

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
    bool mentions(const void* data, size_t bytes) const;
  };
  void run(const List& list);
  bool record(const List& list);
  void capture(const List& list);
  void drop_record() noexcept;

  int device_;
  Warn warn_;
  Start start_;
  bool can_record_ = true;
  Stream stream_ = nullptr;
  List collected_, running_;
  List last_;      // of those worth recording
  List recorded_;  // what graph_ does
  Graph graph_ = nullptr;
  Counts counts_;
  std::exception_ptr failure_;
};

}  // namespace lariat::cuda
