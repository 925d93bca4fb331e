#include "tests/simt/simt.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/simt/checked.h"
#include "tests/simt/planted.h"
#include "tests/skip.h"

namespace simt {
namespace {

// Prints the settings that repeat a failed run.
class SaySettings : public testing::Environment {
  void TearDown() override {
    if (testing::UnitTest::GetInstance()->Failed()) std::printf("simt: run with %s\n", settings().c_str());
  }
};
[[maybe_unused]] const testing::Environment* const g_say_settings =
    testing::AddGlobalTestEnvironment(new SaySettings);

// Returns the fault or wrong result, "" if the kernel completes.
std::string outcome(Bug bug, Order with) {
  const Order before = order();
  set_order(with);
  std::string what;
  try {
    run_planted(bug);
  } catch (const std::exception& error) {
    what = error.what();
  }
  set_order(before);
  return what;
}

struct Expected {
  Bug bug;
  std::string_view words;  // of the fault; empty: correct
};

void expect_outcomes(std::initializer_list<Expected> all) {
  for (const auto& [bug, words] : all) {
    for (Order with : {Order::kForward, Order::kBackward, Order::kRandom}) {
      const std::string what = outcome(bug, with);
      EXPECT_TRUE(words.empty() ? what.empty() : what.find(words) != std::string::npos)
          << "planted bug " << static_cast<int>(bug) << ": '" << what << "', expected '" << words << "'";
    }
  }
}

// An early launch may read an earlier list's results before it waits.
TEST(Simt, CorrectKernelsRun) {
  expect_outcomes({{Bug::kSound, ""}, {Bug::kLastBlock, ""}, {Bug::kEarly, ""}});
}

TEST(Simt, FaultsInAnyBuild) {
  constexpr std::string_view kNeverWaits = "leaves a launch that started early, and has not waited";
  expect_outcomes({
      {Bug::kLeavesBarrier, "thread 77"},
      {Bug::kOtherBarrier, "waits at the barrier of planted.cu:"},
      {Bug::kDivergentShuffle, "divergent __shfl_xor_sync"},
      {Bug::kShuffleOutsideMask, "__shfl_xor_sync"},
      {Bug::kOtherMask, "__shfl_xor_sync"},
      {Bug::kCopyInFlight, "asynchronous copies in flight"},
      {Bug::kEarlyNeverWaits, kNeverWaits},
      {Bug::kEarlyOneNeverWaits, "thread 7 leaves a launch that started early, and has not waited"},
      {Bug::kEarlyAtomic, "atomic operation on device memory by a thread that has not waited"},
      {Bug::kEarlyPrefetch, "prefetch from outside an allocation"},
  });
}

TEST(Simt, ACorrectKernelRunsAfterAFault) {
  outcome(Bug::kLeavesBarrier, Order::kForward);
  EXPECT_EQ(outcome(Bug::kSound, Order::kForward), "");
}

// AddressSanitizer stops at the overruns.
TEST(Simt, FaultsThatNeedChecksOfEveryAccess) {
  if (!hooks_linked()) LARIAT_SKIP("this build does not check every access");
  constexpr std::string_view kUnwritten = "shared memory that nobody wrote",
                             kOtherBlock = "reads device memory that block";
  constexpr std::string_view kOutside = "outside device memory";
  constexpr std::string_view kTooEarly =
      "reads device memory before it has waited for earlier launches, one of which wrote it";
  expect_outcomes({
      {Bug::kMissingBarrier, "shared memory"},
      {Bug::kMissingWarpBarrier, "shared memory"},
      {Bug::kOverwritten, "race on shared memory"},
      {Bug::kMissingCopyWait, kUnwritten},
      {Bug::kUnwrittenShared, kUnwritten},
      {Bug::kSharedOverrun, kOutside},
      {Bug::kDynamicOverrun, kOutside},
      {Bug::kDeviceOverrun, kOutside},
      {Bug::kHostMemory, "reads outside device memory"},
      {Bug::kSameBytes, "of the same launch wrote"},
      {Bug::kReadsOtherBlock, kOtherBlock},
      {Bug::kMissingRelease, kOtherBlock},
      {Bug::kMissingAcquire, kOtherBlock},
      {Bug::kCountsTooEarly, kOtherBlock},
      {Bug::kEarlyRead, kTooEarly},
      {Bug::kEarlyNewWeights, kTooEarly},
      {Bug::kEarlyReadNeverWaits, kTooEarly},
      {Bug::kEarlyCopy, kTooEarly},
      {Bug::kEarlyWrite, "writes device memory before it has waited for earlier launches"},
  });
}

TEST(Simt, QueuedLaunchesDoNotOutliveTheirMemory) {
  try {
    free_too_early(false);
    FAIL() << "no fault for memory that was freed before its launch";
  } catch (const Fault& fault) {
    EXPECT_STREQ(fault.what(), "launch with memory that was freed before it ran");
  }
  EXPECT_DEATH(free_too_early(true), "memory is freed that a recorded launch was given");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(SimtAsanDeathTest, OverrunsAreDetected) {
  // UndefinedBehaviorSanitizer reports the index of a static array first.
  EXPECT_DEATH(run_planted(Bug::kSharedOverrun), "heap-buffer-overflow|index 4 out of bounds");
  EXPECT_DEATH(run_planted(Bug::kDynamicOverrun), "heap-buffer-overflow");
  EXPECT_DEATH(run_planted(Bug::kDeviceOverrun), "heap-buffer-overflow");
}
#endif

TEST(Simt, LaunchLimits) {
  auto empty = +[](int) {};
  EXPECT_THROW(launch(empty, Dim3(0), Dim3(32), 0, false, 1), Fault);
  EXPECT_THROW(launch(empty, Dim3(1), Dim3(1025), 0, false, 1), Fault);
  EXPECT_THROW(launch(empty, Dim3(1, 70000), Dim3(32), 0, false, 1), Fault);
  EXPECT_THROW(launch(empty, Dim3(1), Dim3(32), 300 << 10, false, 1), Fault);
  EXPECT_NO_THROW(launch(empty, Dim3(2, 3, 4), Dim3(4, 4, 2), 0, false, 1));
}

}  // namespace
}  // namespace simt
