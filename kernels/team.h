#pragma once

// Each calling thread owns a team until the thread ends.
namespace lariat {

// Cores available to this process: its CPU affinity and the quota of its container.
int cores();

// Grows the calling thread's team to `threads` threads, including itself. Throws Error if a thread cannot
// start.
void start_team(int threads);

using TeamBody = void (*)(const void* context, int worker);
void run_team(int threads, TeamBody body, const void* context);

// Runs body(worker) for every worker in [0, threads) and returns when all have finished. The caller also runs
// shares of threads that start late. A nested call runs on one thread; bodies must not wait for each other.
// Throws like start_team; rethrows a body's exception after all have finished.
template <class Body>
void run_team(int threads, const Body& body) {
  const auto call = [](const void* context, int worker) { (*static_cast<const Body*>(context))(worker); };
  run_team(threads, call, &body);
}

}  // namespace lariat
