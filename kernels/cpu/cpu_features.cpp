#include "kernels/cpu/cpu_features.h"

#include <hwy/targets.h>

namespace lariat::cpu {

#if defined(__x86_64__)

namespace {

bool has_avx512() {
  // Highway's list, so that a test that forbids it AVX-512 forbids it here too.
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

// Asked once: the question takes a microsecond, more under a hypervisor.
bool has_avx512_bf16() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}

bool has_avx512_vnni() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512vnni");
  return has;
}

#else

bool has_avx512_bf16() { return false; }
bool has_avx512_vnni() { return false; }

#endif

}  // namespace lariat::cpu
