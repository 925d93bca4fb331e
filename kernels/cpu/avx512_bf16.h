#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

// Before a function that uses AVX-512 with VDPBF16PS; called only where has_avx512_bf16().
#define LARIAT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

#endif
