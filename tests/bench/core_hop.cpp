// Nanoseconds for a cache line between two cores: 15 to 30 within a shared L3, else 100 and more. Virtual
// cores may move, which changes their memory bandwidth: tools/lab/peers/compare.py --probe runs around each
// measurement.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "engine/stopwatch.h"

namespace {

constexpr int kRounds = 20000, kTries = 5;

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Waits for even or odd turns and passes each on.
void play(std::atomic<int>& turn, int first) {
  for (int mine = first; mine < 2 * kRounds; mine += 2) {
    while (turn.load(std::memory_order_acquire) != mine) {
#if defined(__x86_64__)
      __builtin_ia32_pause();  // spinning loads delay the awaited store
#endif
    }
    turn.store(mine + 1, std::memory_order_release);
  }
}

double seconds_per_hop(int here, int there) {
  struct alignas(128) {
    std::atomic<int> turn{-2};
  } line;  // separate cache line
  std::atomic<int>& turn = line.turn;
  std::thread other([&] {
    stay_on(there);
    turn.store(-1, std::memory_order_release);
    play(turn, 1);
  });
  stay_on(here);
  while (turn.load(std::memory_order_acquire) != -1) {
  }
  const auto start = lariat::Stopwatch::now();
  turn.store(0, std::memory_order_release);
  play(turn, 0);
  other.join();
  return lariat::seconds_since(start) / (2 * kRounds);
}

}  // namespace

int main() {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) {
    std::fprintf(stderr, "core_hop: error: this process may use one core only\n");
    return 1;
  }
  double best = seconds_per_hop(cores[0], cores[1]);  // other programs only add time
  for (int i = 1; i < kTries; ++i) best = std::min(best, seconds_per_hop(cores[0], cores[1]));
  std::printf("%.1f\n", best * 1e9);
}
