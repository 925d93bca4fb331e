#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

// Attribute of functions with AVX-512 VDPBF16PS; they require has_avx512_bf16().
#define LARIAT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

#endif
