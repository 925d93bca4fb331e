#include "tests/simt/simt.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/simt/checked.h"
#include "tests/simt/planted.h"

namespace simt {
namespace {

// What a failed run has to be repeated with.
class SaySettings : public testing::Environment {
  void TearDown() override {
    if (testing::UnitTest::GetInstance()->Failed()) std::printf("simt: run with %s\n", settings().c_str());
  }
};
[[maybe_unused]] const testing::Environment* const g_say_settings =
    testing::AddGlobalTestEnvironment(new SaySettings);

// What the fault of a planted kernel says, or "" when it runs to its end. A wrong result is a fault, too.
std::string outcome(std::string_view name, Order with) {
  const Order before = order();
  set_order(with);
  std::string what;
  try {
    run_planted(name);
  } catch (const std::exception& error) {
    what = error.what();
  }
  set_order(before);
  return what;
}

void expect_caught(std::string_view name, std::string_view words) {
  for (Order with : {Order::kForward, Order::kBackward, Order::kRandom}) {
    const std::string what = outcome(name, with);
    EXPECT_NE(what.find(words), std::string::npos) << name << ": '" << what << "'";
  }
}

TEST(Simt, SoundKernelRuns) {
  EXPECT_EQ(outcome("sound", Order::kForward), "");
  EXPECT_EQ(outcome("sound", Order::kBackward), "");
  EXPECT_EQ(outcome("sound", Order::kRandom), "");
}

TEST(Simt, TheLastBlockMayReadWhatOthersLeft) {
  for (Order with : {Order::kForward, Order::kBackward, Order::kRandom}) {
    EXPECT_EQ(outcome("last-block", with), "");
  }
}

TEST(Simt, BarrierLeft) { expect_caught("leaves-barrier", "thread 77"); }
TEST(Simt, AnotherBarrier) { expect_caught("other-barrier", "waits at the barrier of planted.cu:"); }
TEST(Simt, DivergentShuffle) { expect_caught("divergent-shuffle", "divergent __shfl_xor_sync"); }
TEST(Simt, ShuffleOutsideMask) { expect_caught("shuffle-outside-mask", "__shfl_xor_sync"); }
TEST(Simt, DifferentMasks) { expect_caught("other-mask", "__shfl_xor_sync"); }
TEST(Simt, CopyInFlightAtTheEnd) { expect_caught("copy-in-flight", "asynchronous copies in flight"); }

// What an earlier list left, a launch that starts early may read before it waits.
TEST(Simt, LaunchesMayStartEarly) {
  for (Order with : {Order::kForward, Order::kBackward, Order::kRandom})
    EXPECT_EQ(outcome("early", with), "");
}
TEST(Simt, ALaunchThatStartsEarlyAndNeverWaits) {
  expect_caught("early-never-waits", "leaves a launch that started early, and has not waited");
  expect_caught("early-one-never-waits", "thread 7 leaves a launch that started early, and has not waited");
}
TEST(Simt, WhatIsSeenOfTooEarlyAccessesInAnyBuild) {
  expect_caught("early-atomic", "atomic operation on device memory by a thread that has not waited");
  expect_caught("early-prefetch", "prefetch from outside an allocation");
}

TEST(Simt, SoundKernelRunsAfterAFault) {
  outcome("leaves-barrier", Order::kForward);
  EXPECT_EQ(outcome("sound", Order::kForward), "");
}

// What only the checks of every access see. An AddressSanitizer build ends at the overruns by itself.
class SimtChecked : public testing::Test {
  void SetUp() override {
    if (!hooks_linked()) GTEST_SKIP() << "this build does not check every access";
  }
};

TEST_F(SimtChecked, MissingBarrier) { expect_caught("missing-barrier", "shared memory"); }
TEST_F(SimtChecked, MissingWarpBarrier) { expect_caught("missing-warp-barrier", "shared memory"); }
TEST_F(SimtChecked, Overwritten) { expect_caught("overwritten", "race on shared memory"); }
TEST_F(SimtChecked, MissingCopyWait) {
  expect_caught("missing-copy-wait", "shared memory that nobody wrote");
}
TEST_F(SimtChecked, UnwrittenShared) { expect_caught("unwritten-shared", "shared memory that nobody wrote"); }
TEST_F(SimtChecked, SharedOverrun) { expect_caught("shared-overrun", "outside device memory"); }
TEST_F(SimtChecked, DynamicOverrun) { expect_caught("dynamic-overrun", "outside device memory"); }
TEST_F(SimtChecked, DeviceOverrun) { expect_caught("device-overrun", "outside device memory"); }
TEST_F(SimtChecked, HostMemory) { expect_caught("host-memory", "reads outside device memory"); }

TEST_F(SimtChecked, SameBytesOfTwoBlocks) { expect_caught("same-bytes", "of the same launch wrote"); }
TEST_F(SimtChecked, ReadsOfAnotherBlock) {
  expect_caught("reads-other-block", "reads device memory that block");
}
TEST_F(SimtChecked, UnorderedReadsOfTheLastBlock) {
  for (std::string_view bug : {"missing-release", "missing-acquire", "counts-too-early"}) {
    expect_caught(bug, "reads device memory that block");
  }
}

TEST_F(SimtChecked, TooEarlyAccesses) {
  for (std::string_view bug : {"early-read", "early-new-weights", "early-read-never-waits", "early-copy"}) {
    expect_caught(bug,
                  "reads device memory before it has waited for earlier launches, one of which wrote it");
  }
  expect_caught("early-write", "writes device memory before it has waited for earlier launches");
}

TEST(Simt, QueuedLaunchesDoNotOutliveTheirMemory) {
  try {
    free_too_early(false);
    FAIL() << "memory was freed before the launch that was given it";
  } catch (const Fault& fault) {
    EXPECT_STREQ(fault.what(), "launch with memory that was freed before it ran");
  }
  EXPECT_DEATH(free_too_early(true), "memory is freed that a recorded launch was given");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(SimtAsanDeathTest, OverrunsAreSeen) {
  // A static array's size is in its type: UndefinedBehaviorSanitizer sees the index before the access
  // happens.
  EXPECT_DEATH(run_planted("shared-overrun"), "heap-buffer-overflow|index 4 out of bounds");
  EXPECT_DEATH(run_planted("dynamic-overrun"), "heap-buffer-overflow");
  EXPECT_DEATH(run_planted("device-overrun"), "heap-buffer-overflow");
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
