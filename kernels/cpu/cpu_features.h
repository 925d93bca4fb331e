#pragma once
#include <cstdint>
#include <string_view>

namespace lariat::cpu {

// AVX2 with fused multiply-adds and F16C.
bool has_avx2();

// AVX-512 with bf16 dot products (VDPBF16PS).
bool supports_avx512_bf16();
// Whether kernels use VDPBF16PS: bf16_dot_speedup() (gemm.h) is at least 2/3, since f32 kernels reach a
// smaller share of their peak. A requested path overrides it.
bool has_avx512_bf16();

// AVX-512 with byte dot products (VNNI).
bool has_avx512_vnni();

// Whether the processor has bf16 AMX, Linux grants the tile state to all threads, and no older path is
// requested.
bool has_amx_bf16();
std::string_view amx_bf16_unavailable_reason();  // empty if available

// Path of products with bf16 weights, the fastest unless LARIAT_CPU_PATH or request_path names another.
enum class Path : uint8_t { kFastest, kF32, kBf16, kAmx };
Path path();
void request_path(Path path);  // before kernels run; ignored where the processor lacks it

// x86-64 processors by code path (docs/accuracy.md). Each includes all earlier paths; kAvx512Bf16 has VNNI.
enum class Processor { kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// For tests (tests/limit_targets.cpp): newest kind to use, and whether AMX is emulated.
inline Processor newest_processor = Processor::kAmx;
inline bool amx_is_emulated = false;

}  // namespace lariat::cpu
