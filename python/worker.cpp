#include "python/worker.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/error.h"

namespace lariat::python {
namespace {

struct Job {
  const std::function<void()>* work = nullptr;
  std::shared_ptr<void> garbage{};
  bool* done = nullptr;
  std::exception_ptr* error = nullptr;
};

class Worker {
 public:
  // Never destroyed: its thread may wait at the program's end.
  static Worker& get() {
    static Worker* const worker = new Worker;
    return *worker;
  }

  bool forked() const { return getpid() != process_; }

  void add(Job job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    added_.notify_one();
  }

  // Without the GIL. Returns the exception of a signal handler.
  std::optional<nb::python_error> run(Flag& interrupted, const std::function<void()>& work) {
    std::optional<nb::python_error> raised;
    bool done = false;
    std::exception_ptr error;
    add({&work, {}, &done, &error});
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, std::chrono::milliseconds(20), [&] { return done; })) {
      if (interrupted) continue;
      lock.unlock();
      {
        const nb::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) raised.emplace();
      }
      lock.lock();
      if (!raised) continue;
      interrupted = true;
      // Other threads' work may take long.
      if (std::erase_if(jobs_, [&](const Job& job) { return job.work == &work; }) > 0) return raised;
    }
    if (error && !raised) std::rethrow_exception(error);
    return raised;
  }

 private:
  Worker() {
    std::thread([this] { serve(); }).detach();
  }

  [[noreturn]] void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [&] { return !jobs_.empty(); });
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job.garbage.reset();
      if (job.work == nullptr) continue;
      try {
        (*job.work)();
      } catch (...) {
        *job.error = std::current_exception();
      }
      lock.lock();
      *job.done = true;
      finished_.notify_all();
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable added_, finished_;
  std::deque<Job> jobs_;
};

}  // namespace

void compute(Flag& interrupted, const std::function<void()>& work) {
  Worker& worker = Worker::get();
  if (worker.forked())
    throw Error("lariat does not run in a forked process; start processes with the method \"spawn\"");
  if (PyErr_CheckSignals() != 0) throw nb::python_error();  // list(iterator) runs no bytecode that would
  const std::optional<nb::python_error> raised = [&] {
    const nb::gil_scoped_release release;
    return worker.run(interrupted, work);
  }();
  if (raised) throw nb::python_error(*raised);
}

void destroy_later(std::shared_ptr<void> object) {
  if (object && !Worker::get().forked()) Worker::get().add({.garbage = std::move(object)});
}

}  // namespace lariat::python
