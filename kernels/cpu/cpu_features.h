#pragma once
#include <string_view>

namespace lariat::cpu {

// Whether this processor can run AVX2 with fused multiply-adds and F16C.
bool has_avx2();

// Whether it (and its operating system) can run AVX-512 with bf16 dot products.
bool has_avx512_bf16();

// Whether it can run AVX-512 with dot products of bytes.
bool has_avx512_vnni();

// Whether it can multiply tiles of bf16 (AMX), and whether the kernel lets this process: Linux gives the
// eight KiB of tiles only to a process that has asked for them, which the first call does for all its
// threads.
bool has_amx_bf16();
std::string_view amx_bf16_unavailable_reason();  // empty when it can

// Kinds of x86-64 processor that differ in what they run here (docs/accuracy.md), each with all that those
// before it have. kAvx512Bf16 has VNNI too.
enum class Processor { kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// For tests (tests/limit_targets.cpp): the newest kind that this processor may be taken for, and whether AMX
// is emulated, by what gemm_amx and attention_amx then point to.
inline Processor newest_processor = Processor::kAmx;
inline bool amx_is_emulated = false;

}  // namespace lariat::cpu
