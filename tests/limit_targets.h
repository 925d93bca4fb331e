#pragma once
#include <hwy/targets.h>

#include "kernels/cpu/cpu_features.h"

namespace lariat::test {

// LARIAT_TEST_TARGET, in the order of cpu::Processor.
inline constexpr const char* kProcessors[] = {"SSE4", "AVX2", "AVX512", "AVX512_BF16", "AMX"};

inline cpu::Processor this_processor() {
  if (cpu::has_amx_bf16()) return cpu::Processor::kAmx;
  if (cpu::supports_avx512_bf16()) return cpu::Processor::kAvx512Bf16;
#if defined(__x86_64__)
  if ((hwy::SupportedTargets() & HWY_AVX3) != 0) return cpu::Processor::kAvx512;
#endif
  return cpu::has_avx2() ? cpu::Processor::kAvx2 : cpu::Processor::kSse4;
}

}  // namespace lariat::test
