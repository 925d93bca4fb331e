// main of ranks_test: one process, or one of the ranks of mpirun.
//   ranks_test --measure       latency and bandwidth of all_reduce
//   ranks_test --leave=HOW     rank 1 ends while the others wait: abort, throw or kill
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/error.h"
#include "tests/ranks/ranks.h"
#include "tests/skipped_tests.h"

namespace lariat::test {
namespace {

Communicator* group = nullptr;
bool uses_mpi = false;

// Prints failures of a rank above 0.
class Failures : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (group->rank() == 0 || !part.failed()) return;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "rank %d: %s:%d: %s: %s\n", group->rank(),
                 part.file_name() == nullptr ? "?" : part.file_name(), part.line_number(),
                 test == nullptr ? "?" : test->name(), part.message());
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (group->size() > 1 && test.result()->HasFatalFailure()) group->abort(1);
  }
};

// Median seconds of a call, over calls of all ranks at once.
double median_seconds(size_t values, int calls) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> data(values, 0.5F);
  std::vector<double> seconds;
  for (int i = 0; i < calls + calls / 10 + 1; ++i) {
    std::fill(data.begin(), data.end(), 0.5F);
    group->barrier();
    const auto start = Clock::now();
    group->all_reduce(data);
    if (i > calls / 10) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + calls / 2, seconds.end());
  return seconds[static_cast<size_t>(calls) / 2];
}

void measure() {
  for (const size_t kb : {8, 16, 32, 64, 1024, 64 * 1024}) {
    const double seconds = median_seconds(kb * 1024 / sizeof(float), kb < 128 ? 10000 : kb < 2000 ? 500 : 10);
    if (group->rank() > 0) continue;
    std::printf("%d ranks  %6zu kB  %9.1f us  %7.2f GB/s\n", group->size(), kb, seconds * 1e6,
                kb * 1024e-9 / seconds);
  }
}

// Exit code of a rank.
int leave(std::string_view how) {
  std::vector<float> values(8);
  if (group->rank() == 1) {
    if (how == "abort") group->abort(42);
    if (how == "throw") throw Error("rank 1 fails alone");
    if (how == "kill") std::raise(SIGKILL);
  }
  group->all_reduce(values);
  return 0;
}

int run(int argc, char** argv) {
  const std::unique_ptr<Communicator> communicator = make_communicator();
  group = communicator.get();
  uses_mpi = group->size() > 1;
  const std::string_view mode = argc > 1 ? argv[1] : "", leaves = "--leave=";
  if (mode == "--measure") return measure(), 0;
  if (mode.substr(0, leaves.size()) == leaves) return leave(mode.substr(leaves.size()));
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (group->rank() > 0) delete listeners.Release(listeners.default_result_printer());
  if (group->rank() == 0) listeners.Append(new SkippedTests);
  listeners.Append(new Failures);
  return run_tests();
}

}  // namespace

Communicator& ranks() { return *group; }

}  // namespace lariat::test

// Asked by LeakSanitizer: MPI leaks memory of modules that it unloads, which no suppression can name.
extern "C" int __lsan_is_turned_off() { return lariat::test::uses_mpi ? 1 : 0; }

int main(int argc, char** argv) {
  try {
    return lariat::test::run(argc, argv);
  } catch (const lariat::Error& error) {
    std::fprintf(stderr, "ranks_test: %s\n", error.what());
    return 43;
  }
}
