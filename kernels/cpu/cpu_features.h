#pragma once

namespace lariat::cpu {

// Whether this processor (and its operating system) can run AVX-512 with bf16 dot products.
bool has_avx512_bf16();

// Whether it can run AVX-512 with dot products of bytes.
bool has_avx512_vnni();

}  // namespace lariat::cpu
