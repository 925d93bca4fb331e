#pragma once

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

}  // namespace lariat
