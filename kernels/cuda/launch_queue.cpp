#include "kernels/cuda/launch_queue.h"

#include <utility>

namespace lariat::cuda {
namespace {

// Fewer are not worth a graph: between two cuBLAS products of a prefill there are three at most, or with
// experts a dozen, which are compared for nothing. More are not one step of any model.
constexpr size_t kFewest = 8, kMost = 8192;

}  // namespace

LaunchQueue::~LaunchQueue() {
  if (graph_ != nullptr) graph_destroy(graph_);
  stream_destroy(stream_);
}

std::byte* LaunchQueue::add(QueuedLaunch launch, size_t bytes) {
  launch.arguments = collected_.arguments.size();
  collected_.arguments.resize(launch.arguments + bytes);
  collected_.launches.push_back(launch);
  return collected_.arguments.data() + launch.arguments;
}

void LaunchQueue::run(const List& list) {
  for (const QueuedLaunch& launch : list.launches) {
    launch.run(launch, list.arguments.data() + launch.arguments, stream_);
  }
}

void LaunchQueue::record(const List& list) {
  if (graph_ != nullptr) graph_destroy(graph_);
  graph_ = nullptr;
  recorded_.clear();
  capture_begin(stream_);
  try {
    run(list);
  } catch (...) {
    capture_abandon(stream_);
    throw;
  }
  graph_ = capture_end(stream_);
  recorded_ = list;
}

void LaunchQueue::flush() {
  if (failure_ != nullptr) {
    drop();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  if (collected_.launches.empty()) return;
  // Whatever fails below, the next flush starts with an empty list.
  running_.clear();
  std::swap(collected_, running_);
  const size_t size = running_.launches.size();
  if (size < kFewest || size > kMost) return run(running_);

  if (graph_ != nullptr && running_ == recorded_) {
    graph_launch(graph_, stream_);
    ++counts_.replayed;
  } else if (running_ == last_) {
    record(running_);
    graph_launch(graph_, stream_);
    ++counts_.recorded;
  } else {
    run(running_);
    std::swap(last_, running_);
    ++counts_.direct;
  }
}

void LaunchQueue::flush_noexcept() noexcept {
  try {
    flush();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

}  // namespace lariat::cuda
