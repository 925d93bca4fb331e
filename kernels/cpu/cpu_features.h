#pragma once

namespace lariat::cpu {

// Whether this processor (and its operating system) can run AVX-512 with bf16 dot products.
bool has_avx512_bf16();

}  // namespace lariat::cpu
