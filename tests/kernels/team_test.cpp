// Every share runs once, and waiting costs nothing.
#include "kernels/team.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/parallel.h"
#include "tests/count_allocations.h"
#include "tests/skip.h"

namespace lariat::test {
namespace {

using namespace std::chrono_literals;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs of each share after `rounds` dependent rounds.
std::vector<int> shares(int threads, int rounds) {
  std::vector<int> done(static_cast<size_t>(threads));
  for (int round = 0; round < rounds; ++round) {
    run_team(threads, [&](int worker) {
      int& mine = done[static_cast<size_t>(worker)];
      mine = mine == round ? round + 1 : -1000000;
    });
  }
  return done;
}

// Pins body's thread and its team to one core.
template <class Body>
void on_one_core(const Body& body) {
  std::thread([&] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(cores(), 1);
    body();
  }).join();
}

TEST(Team, DoesEveryShareOnce) {
  for (const int threads : {1, 2, 5, 3, 8, 2})
    EXPECT_EQ(shares(threads, 300), std::vector<int>(static_cast<size_t>(threads), 300));
}

TEST(Team, EachThreadHasItsOwn) {
  std::vector<int> of_others[3];
  std::vector<std::thread> others;
  for (auto& done : of_others) others.emplace_back([&] { done = shares(3, 300); });
  for (auto& other : others) other.join();
  for (const auto& done : of_others) EXPECT_EQ(done, std::vector<int>(3, 300));
}

TEST(Team, ANestedTeamRunsAlone) {
  std::vector<int> done(6);
  run_team(3, [&](int outer) {
    const auto here = std::this_thread::get_id();
    run_team(2, [&](int inner) {
      if (std::this_thread::get_id() == here) ++done[static_cast<size_t>(2 * outer + inner)];
    });
  });
  EXPECT_EQ(done, std::vector<int>(6, 1));
}

// A waiting thread must yield or work alone.
TEST(Team, MoreThreadsThanCoresFinish) {
  on_one_core([] {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(shares(2, 20000), std::vector<int>(2, 20000));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);  // 0.1; minutes if waiting threads spin
  });
}

TEST(Team, WaitingThreadsSleep) {
  for (const int threads : {2, 4}) {
    run_team(threads, [](int) {});
    std::this_thread::sleep_for(20ms);  // past the spinning phase
    const double before = cpu_seconds();
    std::this_thread::sleep_for(300ms);
    EXPECT_LT(cpu_seconds() - before, 0.03) << threads;
  }
  // A waiting caller sleeps, too.
  const double before = cpu_seconds();
  run_team(2, [](int worker) {
    if (worker == 1) std::this_thread::sleep_for(300ms);
  });
  EXPECT_LT(cpu_seconds() - before, 0.03);
}

// New members may find no memory, which only the caller can report.
TEST(Team, MembersAllocateNothing) {
  if (allocations() == 0) LARIAT_SKIP("a sanitizer has its own operator new");
  const int64_t before = allocations() - own_allocations();
  int64_t callers = 0;
  std::thread caller([&] {
    run_team(3, [](int) {});
    callers = own_allocations();
  });
  caller.join();
  EXPECT_EQ(allocations() - own_allocations() - before, callers);
}

TEST(Team, RethrowsTheBodysError) {
  for (const int thrower : {0, 1, 2}) {
    std::atomic<int> done = 0;
    const auto body = [&](int worker) {
      if (worker == thrower) throw std::runtime_error("thrown");
      ++done;
    };
    EXPECT_THROW(run_team(3, body), std::runtime_error) << thrower;
    EXPECT_EQ(done, 2) << "the other shares are done";
  }
  EXPECT_EQ(shares(3, 300), std::vector<int>(3, 300)) << "the team keeps working";
}

TEST(Team, TakesTasksInOrder) {
  for (const int threads : {1, 2, 3}) {
    std::vector<int> done(1000);
    for_tasks(threads, 1000, [&](int64_t task, int worker) {
      if (worker < threads) ++done[static_cast<size_t>(task)];
    });
    EXPECT_EQ(done, std::vector<int>(1000, 1));
  }
}

}  // namespace
}  // namespace lariat::test
