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

// A decode step has a hundred small launches, which cost more to queue than to run. Launches are therefore
// collected; a list that comes twice in a row is recorded as a CUDA graph. Data that changes at every step is
// in device memory (DeviceStep): kernels, grids and arguments describe a list fully.
//
// All launches of a list start early (Start), except the first, which waits for all earlier work.
namespace lariat::cuda {

struct QueuedLaunch {
  using Run = void (*)(const QueuedLaunch& queued, const std::byte* arguments, Stream stream, Start start);

  Run run = nullptr;
  void (*kernel)() = nullptr;
  std::array<unsigned, 3> grid = {}, block = {};
  size_t shared_bytes = 0;
  size_t arguments = 0;  // offset in the list's arguments

  bool operator==(const QueuedLaunch&) const = default;
};

// A stream of one device, and the launches not yet on it.
class LaunchQueue {
 public:
  // Runs of lists worth recording.
  struct Counts {
    int64_t direct = 0, recorded = 0, replayed = 0;
    size_t launches = 0;  // in the last list
  };

  using Warn = std::function<void(const std::string&)>;

  // Requires an open `device`. If recording is impossible, launches are queued one by one and `warn` is
  // called once. start: of all launches except the first.
  explicit LaunchQueue(int device, Warn warn = {}, Start start = Start::kEarly)
      : device_(device), warn_(std::move(warn)), start_(start), stream_(stream_create()) {}
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;
  ~LaunchQueue();

  // Appends a launch; returns the address for its `bytes` bytes of arguments.
  std::byte* add(QueuedLaunch launch, size_t bytes);

  // Puts all collected launches on the stream and makes the device current. Throws Error and drops the
  // launches.
  void flush();
  // flush() without exceptions: the next flush() throws the error.
  void flush_noexcept() noexcept;
  void drop() noexcept { collected_.clear(); }  // discards the collected launches
  // Call before memory is freed: flushes, and destroys a record with addresses in this memory.
  void let_go(const void* data, size_t bytes) noexcept;

  // The only access to the stream, so that no work overtakes collected launches.
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
  List last_;      // last list worth recording
  List recorded_;  // the list in graph_
  Graph graph_ = nullptr;
  Counts counts_;
  std::exception_ptr failure_;
};

}  // namespace lariat::cuda
