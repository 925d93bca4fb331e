#pragma once
#include <chrono>

// The threads that share a piece of work with the one that has it, and how they wait for the next. Every
// thread that asks has a team of its own, for as long as it lives.
namespace lariat {

// The cores that this process may run on.
int cores();

// Makes the calling thread's team one of at least so many threads, itself among them. Throws Error when one
// cannot be had.
void start_team(int threads);

using TeamBody = void (*)(const void* context, int worker);
void run_team(int threads, TeamBody body, const void* context);

// Runs body(worker) for every worker in [0, threads), and returns when all have ended. The share of a thread
// that has not come in time, as others have its core, is done by the caller, and within a body there is no
// other thread: no body may wait for another one. Throws like start_team, and what a body threw, once all
// have ended.
template <class Body>
void run_team(int threads, const Body& body) {
  const auto call = [](const void* context, int worker) { (*static_cast<const Body*>(context))(worker); };
  run_team(threads, call, &body);
}

// Whether others have the cores.
class CoreWatch {
 public:
  explicit CoreWatch(int threads) : threads_(threads) {}
  double seconds() const;  // since it was made
  // The part of the time of `threads` threads since then in which they were ready to run and had no core; 0
  // where the system does not say. Up to a tenth is nothing to speak of.
  double share() const;
  static constexpr double kMost = 0.1;

 private:
  static double waited();  // seconds so far, of the threads that this process has

  int threads_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double before_ = waited();
};

}  // namespace lariat
