#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/error.h"

// Stubs of the x86-64 kernels, never called.
#if !defined(__x86_64__)

namespace lariat::cpu {
namespace {

[[noreturn]] void absent() { throw Error("kernel: requires an x86-64 processor"); }

}  // namespace

bool has_avx2() { return false; }
bool supports_avx512_bf16() { return false; }
bool has_avx512_bf16() { return false; }
bool has_avx512_vnni() { return false; }

void attention_pairs(const AttentionTask&) { absent(); }
void (*attention_amx)(const AttentionTask&) = nullptr;
void (*gemm_amx)(const Matrix&, std::span<const Product>, void*, int) = nullptr;
void (*gemv_amx)(const Matrix&, const Matrix&, const Matrix&, int64_t, int64_t) = nullptr;
void gemv_bf16(const Matrix&, const Matrix&, const Matrix&, int64_t, int64_t) { absent(); }
const GemmKernel& gemm_bf16_kernel() { absent(); }
void quant_dot_avx2(const QuantTask&) { absent(); }
void quant_dot_vnni(const QuantTask&) { absent(); }
double amx_multiply_adds(int64_t, float*) { absent(); }
double bf16_multiply_adds(int64_t, float*) { absent(); }
double vnni_multiply_adds(int64_t, float*) { absent(); }

}  // namespace lariat::cpu

#endif
