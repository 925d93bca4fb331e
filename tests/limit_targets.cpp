// Linked into the tests and benchmarks of CPU code: LARIAT_TEST_TARGET=AVX2 (a name of Highway's) makes them
// run as on a processor that has nothing newer. With LARIAT_TEST_SKIP_SAME as well, a processor that has
// nothing newer anyway runs nothing: the program's own run was the same.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cpu/cpu_backend.h"

namespace lariat::test {
namespace {

const char* wanted_target() { return std::getenv("LARIAT_TEST_TARGET"); }

int64_t target_named(const std::string& name) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    if (name == hwy::TargetName(rest & -rest)) return rest & -rest;
  }
  std::fprintf(stderr, "LARIAT_TEST_TARGET=%s: this processor does not have it\n", name.c_str());
  std::exit(1);
}

// Before main, and so before the first kernel chooses what it runs on.
const bool limited = [] {
  const char* name = wanted_target();
  if (name != nullptr) {
    const int64_t target = target_named(name);  // better instruction sets have lower bits
    if (std::getenv("LARIAT_TEST_SKIP_SAME") != nullptr && (hwy::SupportedTargets() & (target - 1)) == 0) {
      std::printf("SKIPPED: this processor has nothing newer than %s, so that every run is this one\n", name);
      std::exit(77);
    }
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(target - 1));
  }
  return name != nullptr;
}();

TEST(LimitedTargets, NothingNewerIsUsed) {
  const int64_t supported = hwy::SupportedTargets();
  const std::string target = limited ? wanted_target() : hwy::TargetName(supported & -supported);
  const std::string cpu = CpuBackend(1).description();
  const size_t at = cpu.find(", " + target, cpu.find("thread"));
  ASSERT_NE(at, std::string::npos) << cpu;
  if (limited) {
    EXPECT_EQ(cpu.substr(at), ", " + target) << "something newer beside it";
  }
}

}  // namespace
}  // namespace lariat::test
