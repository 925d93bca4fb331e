#pragma once
#include "kernels/cuda/device.h"

// PTX instructions without a C++ equivalent, with plain C++ for the SIMT shim.
//
// Fragments of D[16][8] += A[16][16] B[16][8], for lane = 4 g + t (PTX ISA, "mma.m16n8k16"):
//   a[0] A[g][2t, 2t+1]    a[1] A[g+8][2t, 2t+1]    a[2] A[g][2t+8, 2t+9]    a[3] A[g+8][2t+8, 2t+9]
//   b[0] B[2t, 2t+1][g]    b[1] B[2t+8, 2t+9][g]
//   d[0] D[g][2t]  d[1] D[g][2t+1]  d[2] D[g+8][2t]  d[3] D[g+8][2t+1]
// D[16][8] += A[16][32] B[32][8] in signed bytes ("mma.m16n8k32"), the first byte lowest; d as above:
//   a[0] A[g][4t..4t+3]    a[1] A[g+8][4t..4t+3]    a[2] A[g][4t+16..4t+19]  a[3] A[g+8][4t+16..4t+19]
//   b[0] B[4t..4t+3][g]    b[1] B[4t+16..4t+19][g]
namespace lariat::cuda {

#ifdef __CUDACC__

template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, Half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ void mma_16x8x32(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 point to the rows of matrix i; r[i] of
// lane 4 g + t becomes elements 2t and 2t + 1 of row g.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* shared_row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, transposed: r[i] of lane 4 g + t becomes elements g of rows 2t and 2t + 1.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* shared_row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Copies 16 bytes, or writes zeros without reading when `valid` is false; done when its group is.
__device__ __forceinline__ void cp_async16(void* shared_dst, const void* src, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_dst));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(src), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kLeft of this thread's groups are in flight.
template <int kLeft>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// 2^x with relative error 2^-22; 0 below 2^-126, where exp2f takes four more instructions.
__device__ __forceinline__ float exp2_quick(float x) {
  float y = 0.0F;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns x, opaque to the compiler: values computed from x in a loop do not stay in registers.
__device__ __forceinline__ uint32_t recomputed(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

template <class T>
__device__ __forceinline__ uint32_t pack2_quick(float low, float high) {
  uint32_t word = 0;
  if constexpr (std::is_same_v<T, Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

#else  // the shim

// tests/simt/ptx_simt.cpp; T: Half or BFloat16.
template <class T>
void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_16x8x32(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

namespace detail {
void simt_ldmatrix_x4(uint32_t* r, const void* shared_row, bool transposed);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* shared_row) {
  detail::simt_ldmatrix_x4(r, shared_row, false);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* shared_row) {
  detail::simt_ldmatrix_x4(r, shared_row, true);
}
inline void cp_async16(void* shared_dst, const void* src, bool valid) {
  simt::copy_async(shared_dst, src, 16, !valid);
}
inline void cp_async_commit() { simt::commit_copies(); }
template <int kLeft>
void cp_async_wait() {
  simt::wait_copies(kLeft);
}

inline float exp2_quick(float x) { return x < -126.0F ? 0.0F : exp2f(x); }
inline uint32_t recomputed(uint32_t x) { return x; }
template <class T>
uint32_t pack2_quick(float low, float high) {
  return pack2<T>(low, high);
}

#endif

// sum + products of four pairs of signed bytes.
__device__ __forceinline__ int dot4(uint32_t a, uint32_t b, int sum) {
#ifdef __CUDACC__
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
#else
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return sum;
#endif
}

// Selects bytes of a (0 to 3) and b (4 to 7) by the lower three bits of each of the lower four nibbles.
__device__ __forceinline__ uint32_t choose_bytes(uint32_t a, uint32_t b, uint32_t nibbles) {
#ifdef __CUDACC__
  return __byte_perm(a, b, nibbles);
#else
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    chosen |= static_cast<uint32_t>(both >> (8 * (nibbles >> (4 * i) & 7U)) & 0xffU) << (8 * i);
  }
  return chosen;
#endif
}

__device__ __forceinline__ uint2 load8_streaming(const unsigned char* address) {
#ifdef __CUDACC__
  return __ldcs(reinterpret_cast<const uint2*>(address));
#else
  return *reinterpret_cast<const uint2*>(address);
#endif
}

}  // namespace lariat::cuda
