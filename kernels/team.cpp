#include "kernels/team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "kernels/container.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using Clock = std::chrono::steady_clock;

// A waiting thread polls for one to two microseconds, which bridges most gaps between ops. Then it yields its
// core and polls again; after a millisecond it sleeps. Pure spinning could take the awaited thread's core.
constexpr int kLooks = 32;
constexpr auto kAwake = std::chrono::milliseconds(1);

// State of a member: kWanted requests its share, kBusy runs the share, kIdle ends it. A waiting thread sets
// kAsleep or kAwaited before it sleeps.
enum State : int { kIdle, kAsleep, kWanted, kBusy, kAwaited, kEnd };

struct alignas(64) Member {  // one cache line each
  std::atomic<int> state{kIdle};
  std::thread thread;
};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when the state is neither `from` nor `asleep`.
void wait_while(std::atomic<int>& state, int from, int asleep) {
  const auto end = Clock::now() + kAwake;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (state.load(std::memory_order_acquire) != from) return;
      pause();
    }
    sched_yield();
  } while (Clock::now() < end);
  if (state.compare_exchange_strong(from, asleep)) state.wait(asleep);
}

// Whether this thread runs a body; always true in members.
thread_local bool in_body = false;

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    for (Member& member : members_) tell(member, kEnd);
    for (Member& member : members_) member.thread.join();
  }

  void grow(int threads) {
    while (size() < threads) {
      Member& member = members_.emplace_back();
      try {
        member.thread = std::thread([this, &member, worker = size() - 1] { work(member, worker); });
      } catch (const std::exception&) {  // no thread or no memory
        members_.pop_back();
        throw Error("`threads`: only " + std::to_string(size()) + " of " + std::to_string(threads) +
                    " threads started; lower `threads`, or raise the limit on threads or memory");
      }
    }
  }

  void run(int threads, TeamBody body, const void* context) {
    grow(threads);
    in_body = true;
    body_ = body;
    context_ = context;
    const auto others = members_.begin(), end = others + (threads - 1);
    for (auto member = others; member != end; ++member) tell(*member, kWanted);
    do_share(0);
    for (auto member = others; member != end; ++member) {
      int wanted = kWanted;
      if (member->state.compare_exchange_strong(wanted, kIdle))
        do_share(static_cast<int>(member - others) + 1);
    }
    for (auto member = others; member != end; ++member) wait_while(member->state, kBusy, kAwaited);
    in_body = false;
    if (!thrown_) return;
    thrown_ = false;
    std::rethrow_exception(std::exchange(exception_, nullptr));
  }

 private:
  int size() const { return static_cast<int>(members_.size()) + 1; }
  static void tell(Member& member, State state) {
    if (member.state.exchange(state) == kAsleep) member.state.notify_one();
  }
  void do_share(int worker) {
    try {
      body_(context_, worker);
    } catch (...) {  // the caller reads exception_ after all shares end
      if (!thrown_.exchange(true)) exception_ = std::current_exception();
    }
  }
  void work(Member& member, int worker) {
    in_body = true;
    for (;;) {
      wait_while(member.state, kIdle, kAsleep);
      int wanted = kWanted;
      if (member.state.compare_exchange_strong(wanted, kBusy)) {
        do_share(worker);
        if (member.state.exchange(kIdle) == kAwaited) member.state.notify_one();
      } else if (wanted == kEnd) {
        return;
      }
    }
  }

  std::deque<Member> members_;  // stable addresses
  TeamBody body_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<bool> thrown_ = false;
  std::exception_ptr exception_;  // first of a body
};

thread_local Team own_team;

}  // namespace

int cores() {
  cpu_set_t allowed;
  const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  const int visible = known ? CPU_COUNT(&allowed) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, static_cast<int>(std::ceil(std::min<double>(visible, container_limits().cores))));
}

void start_team(int threads) { own_team.grow(threads); }

void run_team(int threads, TeamBody body, const void* context) {
  if (!in_body) return own_team.run(threads, body, context);
  for (int worker = 0; worker < threads; ++worker) body(context, worker);
}

}  // namespace lariat
