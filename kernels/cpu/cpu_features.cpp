#include "kernels/cpu/cpu_features.h"

#include <hwy/targets.h>

#include <cstdlib>
#include <string>

#include "kernels/cpu/gemm.h"
#include "kernels/error.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace lariat::cpu {

namespace {

Path& requested_path() {
  static Path path = [] {
    const char* const text = std::getenv("LARIAT_CPU_PATH");
    const std::string_view name = text == nullptr ? "" : text;
    if (name == "f32") return Path::kF32;
    if (name == "bf16") return Path::kBf16;
    if (name == "amx") return Path::kAmx;
    if (name.empty()) return Path::kFastest;
    throw Error("LARIAT_CPU_PATH: unknown path \"" + std::string(name) + "\"; use f32, bf16 or amx");
  }();
  return path;
}

}  // namespace

void request_path(Path path) { requested_path() = path; }

Path path() { return has_amx_bf16() ? Path::kAmx : has_avx512_bf16() ? Path::kBf16 : Path::kF32; }

#if defined(__x86_64__)

namespace {

bool has_avx512() {
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

// Queried once: a query takes a microsecond, or more. Highway's AVX2 includes F16C, which clang's builtin
// cannot name.
bool has_avx2() {
  static const bool has = (hwy::SupportedTargets() & HWY_AVX2) != 0 && __builtin_cpu_supports("avx2") &&
                          __builtin_cpu_supports("fma");
  return has && newest_processor >= Processor::kAvx2;
}

bool supports_avx512_bf16() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has && newest_processor >= Processor::kAvx512Bf16;
}

bool has_avx512_bf16() {
  if (!supports_avx512_bf16()) return false;
  if (newest_processor == Processor::kAvx512Bf16) return true;  // for tests
  if (const Path wanted = requested_path(); wanted != Path::kFastest) return wanted != Path::kF32;
  static const bool fast = bf16_dot_speedup() > 2.0 / 3;
  return fast;
}

bool has_avx512_vnni() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512vnni");
  return has && newest_processor >= Processor::kAvx512Bf16;
}

#endif

#if defined(__x86_64__) && defined(__linux__)

namespace {

std::string_view request_tiles() {
  constexpr uint32_t kXsaveInUse = 1U << 27;                   // leaf 1, ECX: XGETBV is available
  constexpr uint32_t kBf16 = 1U << 22, kTile = 1U << 24;       // leaf 7, EDX
  constexpr uint32_t kTileState = 1U << 17 | 1U << 18;         // XCR0: configuration and data
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2), Linux 5.16
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & (kBf16 | kTile)) != (kBf16 | kTile)) {
    return "this processor has no bf16 AMX";
  }
  uint32_t state = 0, high = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kXsaveInUse) != 0) {
    asm volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
  }
  if ((state & kTileState) != kTileState) return "the operating system does not save AMX state";
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    return "the Linux kernel denies AMX to this process";
  return {};
}

}  // namespace

std::string_view amx_bf16_unavailable_reason() {
  if (newest_processor < Processor::kAmx) return "a test disables or emulates AMX";
  if (const Path wanted = requested_path(); wanted != Path::kFastest && wanted != Path::kAmx)
    return "LARIAT_CPU_PATH or rank 0 chose another path";
  static const std::string_view reason = request_tiles();
  return reason;
}

#else

std::string_view amx_bf16_unavailable_reason() { return "AMX is used on Linux and x86-64 only"; }

#endif

bool has_amx_bf16() { return amx_is_emulated || amx_bf16_unavailable_reason().empty(); }

}  // namespace lariat::cpu
