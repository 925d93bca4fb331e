#include "kernels/cuda/launch_queue.h"

#include <cstring>
#include <utility>

namespace lariat::cuda {
namespace {

// Fewer launches are not worth a graph: a prefill has three between two cuBLAS products, or with experts a
// dozen. More launches are never one step of a model.
constexpr size_t kFewest = 8, kMost = 8192;

}  // namespace

LaunchQueue::~LaunchQueue() {
  use_device(device_);
  drop_record();
  stream_destroy(stream_);
}

std::byte* LaunchQueue::add(QueuedLaunch launch, size_t bytes) {
  launch.arguments = collected_.arguments.size();
  collected_.arguments.resize(launch.arguments + bytes);
  collected_.launches.push_back(launch);
  return collected_.arguments.data() + launch.arguments;
}

void LaunchQueue::run(const List& list) {
  Start start = Start::kInOrder;
  for (const QueuedLaunch& launch : list.launches) {
    launch.run(launch, list.arguments.data() + launch.arguments, stream_, start);
    start = start_;
  }
}

// Arguments are packed without gaps: an address may start at any byte. A false match costs only a record.
bool LaunchQueue::List::mentions(const void* data, size_t bytes) const {
  for (size_t i = 0; i + sizeof(uintptr_t) <= arguments.size(); ++i) {
    uintptr_t word = 0;
    std::memcpy(&word, arguments.data() + i, sizeof(word));
    if (word - reinterpret_cast<uintptr_t>(data) < bytes) return true;
  }
  return false;
}

void LaunchQueue::let_go(const void* data, size_t bytes) noexcept {
  flush_noexcept();
  if (graph_ != nullptr && recorded_.mentions(data, bytes)) drop_record();
}

void LaunchQueue::drop_record() noexcept {
  if (graph_ != nullptr) graph_destroy(graph_);
  graph_ = nullptr;
  recorded_.clear();
}

void LaunchQueue::capture(const List& list) {
  try {
    capture_begin(stream_);
    run(list);
    graph_ = capture_end(stream_);
  } catch (...) {
    capture_abandon(stream_);
    throw;
  }
}

bool LaunchQueue::record(const List& list) {
  drop_record();
  const Start wanted = start_;
  try {
    try {
      capture(list);
    } catch (const std::exception&) {
      if (start_ == Start::kInOrder) throw;
      start_ = Start::kInOrder;  // drivers before 12.3 cannot record early starts
      capture(list);
    }
  } catch (const std::exception& error) {  // the list has run before
    start_ = wanted;
    can_record_ = false;
    if (warn_) warn_(std::string(error.what()) + "; without CUDA graphs every token takes longer");
    return false;
  }
  recorded_ = list;
  return true;
}

void LaunchQueue::flush() {
  use_device(device_);
  if (failure_ != nullptr) {
    drop();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  if (collected_.launches.empty()) return;
  // If a call below fails, the next flush starts with an empty list.
  running_.clear();
  std::swap(collected_, running_);
  const size_t size = running_.launches.size();
  if (size < kFewest || size > kMost) return run(running_);
  counts_.launches = size;

  if (graph_ != nullptr && running_ == recorded_) {
    graph_launch(graph_, stream_);
    ++counts_.replayed;
  } else if (can_record_ && running_ == last_ && record(running_)) {
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
