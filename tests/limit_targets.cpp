// LARIAT_TEST_TARGET, one of kProcessors, simulates an older processor; AMX is emulated.
// LARIAT_TEST_SKIP_SAME skips impossible targets and the native one.
#include "tests/limit_targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cpu/amx_product.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "tests/kernels/amx_emulation.h"

namespace lariat::test {
namespace {

using cpu::Processor;

[[noreturn]] void run_nothing(const std::string& name, const char* why) {
  const bool skip = std::getenv("LARIAT_TEST_SKIP_SAME") != nullptr;
  std::fprintf(skip ? stdout : stderr, "%s as %s: %s\n", skip ? "SKIPPED" : "cannot run", name.c_str(), why);
  std::exit(skip ? 77 : 1);
}

void multiply_on_emulated_tiles(const Matrix& x, std::span<const Product> products, void* scratch,
                                int threads) {
  cpu::amx_product<EmulatedTiles>(x, products, scratch, threads, [](int64_t count, const auto& body) {
    for (int64_t task = 0; task < count; ++task) body(task, 0);
  });
}

void run_as(const std::string& name) {
  const auto wanted = static_cast<Processor>(std::ranges::find(kProcessors, name) - kProcessors);
  if (wanted > Processor::kAmx) run_nothing(name, "tests/limit_targets.h knows no such processor");
  if (wanted == Processor::kAmx) {
    cpu::newest_processor = Processor::kAvx512Bf16;
    cpu::amx_is_emulated = true;
    cpu::gemm_amx = multiply_on_emulated_tiles;
    cpu::gemv_amx = cpu::multiply_few_rows<EmulatedTiles>;
    cpu::attention_amx = cpu::attention_tiles<EmulatedTiles>;
    return;
  }
  if (this_processor() < wanted) run_nothing(name, "this processor does not have it");
  const bool newer = this_processor() > wanted || (wanted == Processor::kAvx512 && cpu::has_avx512_vnni());
  if (!newer && std::getenv("LARIAT_TEST_SKIP_SAME") != nullptr) {
    run_nothing(name, "this processor has nothing newer, so that every run is this one");
  }
  cpu::newest_processor = wanted;
  if (wanted == Processor::kAvx512Bf16) return;
  constexpr int64_t kTargets[] = {HWY_SSE4, HWY_AVX2, HWY_AVX3};  // better instruction sets have lower bits
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(kTargets[static_cast<int>(wanted)] - 1));
}

// Runs before main: the first kernel selects the limited target.
const char* const kWanted = [] {
  const char* name = std::getenv("LARIAT_TEST_TARGET");
  if (name != nullptr) run_as(name);
  return name;
}();

TEST(LimitedTargets, NothingNewerIsUsed) {
  const Processor here = this_processor();
  EXPECT_TRUE(cpu::amx_is_emulated || cpu::has_avx2() == (here >= Processor::kAvx2));
  EXPECT_TRUE(here >= Processor::kAvx512 || !cpu::has_avx512_vnni());
  if (kWanted == nullptr) return;
  EXPECT_STREQ(kProcessors[static_cast<int>(here)], kWanted);
  const std::string endings[] = {", SSE4", ", AVX2", ", AVX3", " + bf16", " + AMX"},
                    cpu = CpuBackend(1).description();
  EXPECT_TRUE(cpu.ends_with(endings[static_cast<int>(here)])) << cpu;
}

}  // namespace
}  // namespace lariat::test
