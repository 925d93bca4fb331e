#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/backend.h"
#include "kernels/convert.h"
#include "kernels/cuda/launch.h"
#include "kernels/error.h"
#include "kernels/integers.h"

// Included by every kernel file. Compilers other than nvcc need a header with CUDA's keywords (-include).
#ifdef __CUDACC__
#include <cuda_runtime.h>

#define LARIAT_SHARED(type, name, count) __shared__ type name[count]
#define LARIAT_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#elif !defined(LARIAT_SHARED)
#error "compile .cu files with nvcc, or include a header that defines CUDA's keywords"
#endif

namespace lariat::cuda {

inline constexpr unsigned kFullWarp = 0xffffffffU;
inline constexpr int kWarpSize = 32;

// --- 16-bit storage; arithmetic is always f32 ---------------------------------------------------------
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

#ifdef __CUDACC__
// CUDA's headers of 16-bit types are long, and each file is compiled four times.
__device__ __forceinline__ float to_float(Half x) {
  float value = 0.0F;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}
__device__ __forceinline__ float to_float(BFloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
__device__ __forceinline__ uint16_t half_bits(float x) {
  uint16_t bits = 0;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ uint16_t bfloat16_bits(float x) {
  uint16_t bits = 0;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ float bits_to_float(uint32_t x) { return __uint_as_float(x); }
__device__ __forceinline__ uint32_t float_bits(float x) { return __float_as_uint(x); }
#else
inline float to_float(Half x) { return f16_to_f32(x.bits); }
inline float to_float(BFloat16 x) { return bf16_to_f32(x.bits); }
inline uint16_t half_bits(float x) { return f32_to_f16(x); }
inline uint16_t bfloat16_bits(float x) { return f32_to_bf16(x); }
inline float bits_to_float(uint32_t x) { return std::bit_cast<float>(x); }
inline uint32_t float_bits(float x) { return std::bit_cast<uint32_t>(x); }
#endif
__device__ __forceinline__ float to_float(float x) { return x; }

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, Half>) return Half{half_bits(x)};
  if constexpr (std::is_same_v<T, BFloat16>) return BFloat16{bfloat16_bits(x)};
}

// Numbers beyond f16 become +-65504.
template <class T>
__device__ __forceinline__ T to_cache(float x) {
  if constexpr (std::is_same_v<T, Half>) x = x > 65504.0F ? 65504.0F : x < -65504.0F ? -65504.0F : x;
  return from_float<T>(x);
}

__device__ __forceinline__ float load_any(const void* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
  if (dtype == DType::kF16) return to_float(static_cast<const Half*>(data)[i]);
  return to_float(static_cast<const BFloat16*>(data)[i]);
}
// Whether to_cache<T>(x) is the largest f16; 65488 is half an ulp below 65504.
template <class T>
__device__ __forceinline__ bool saturates(float x) {
  return std::is_same_v<T, Half> && fabsf(x) > 65488.0F;
}
__device__ __forceinline__ void store_to_cache(void* data, DType dtype, int64_t i, float value,
                                               int& saturated) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else if (dtype == DType::kF16) {
    static_cast<Half*>(data)[i] = to_cache<Half>(value);
    if (saturates<Half>(value)) ++saturated;
  } else {
    static_cast<BFloat16*>(data)[i] = to_cache<BFloat16>(value);
  }
}
// Adds a thread's count, usually 0.
__device__ __forceinline__ void count_saturated(int saturated, unsigned long long* total) {
  if (saturated > 0) atomicAdd(total, static_cast<unsigned long long>(saturated));
}
__device__ __forceinline__ float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return to_float(from_float<Half>(value));
  if (dtype == DType::kBF16) return to_float(from_float<BFloat16>(value));
  return value;
}

// Packs two values, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack2(float low, float high) {
  return from_float<T>(low).bits | uint32_t{from_float<T>(high).bits} << 16;
}

// --- 16-byte accesses ------------------------------------------------------------------------------------
template <class T>
inline constexpr int kPerVector = 16 / static_cast<int>(sizeof(T));  // elements of T in 16 bytes

__device__ __forceinline__ uint4 load16(const void* address) { return *static_cast<const uint4*>(address); }
// Loads data that is read once, with an evict-first hint.
__device__ __forceinline__ uint4 load16_streaming(const void* address) {
#ifdef __CUDACC__
  return __ldcs(static_cast<const uint4*>(address));
#else
  return load16(address);
#endif
}
__device__ __forceinline__ void store16(void* address, uint4 value) { *static_cast<uint4*>(address) = value; }

template <class T>
__device__ __forceinline__ void unpack_word(uint32_t word, float* out) {
  if constexpr (sizeof(T) == 4) {
    out[0] = bits_to_float(word);
  } else {
    out[0] = to_float(T{static_cast<uint16_t>(word & 0xffffU)});
    out[1] = to_float(T{static_cast<uint16_t>(word >> 16)});
  }
}

template <class T>
__device__ __forceinline__ void unpack16(uint4 v, float (&out)[kPerVector<T>]) {
  constexpr int kPerWord = kPerVector<T> / 4;
  unpack_word<T>(v.x, out);
  unpack_word<T>(v.y, out + kPerWord);
  unpack_word<T>(v.z, out + 2 * kPerWord);
  unpack_word<T>(v.w, out + 3 * kPerWord);
}

// kStep: 1, or the weights in 16 bytes.
template <class W, int kStep>
__device__ __forceinline__ void load_weights(const W* address, float (&out)[kStep]) {
  if constexpr (kStep == 1) {
    out[0] = to_float(*address);
  } else {
    unpack16<W>(load16_streaming(address), out);
  }
}

// kStep > 1 requires 16-byte alignment.
template <int kStep>
__device__ __forceinline__ void load_x(const float* address, float (&out)[kStep]) {
  if constexpr (kStep == 1) {
    out[0] = *address;
  } else {
#pragma unroll
    for (int i = 0; i < kStep; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(address + i);
      out[i] = v.x;
      out[i + 1] = v.y;
      out[i + 2] = v.z;
      out[i + 3] = v.w;
    }
  }
}

template <int kStep>
__device__ __forceinline__ void load_x(const BFloat16* address, float (&out)[kStep]) {
  if constexpr (kStep == 1) {
    out[0] = to_float(*address);
  } else {
    unpack16<BFloat16>(load16(address), out);
  }
}

// --- warps and blocks ------------------------------------------------------------------------------------
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarpSize; }
__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarpSize; }

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kFullWarp, x, lanes);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, lanes));
  return x;
}

// Reduces x over a block of up to 32 warps; every thread gets the result. `partial`: shared memory for 32
// values, reusable at once.
template <class T, class F>
__device__ __forceinline__ T block_reduce(T x, T neutral, T* partial, const F& combine_warp) {
  x = combine_warp(x);
  if (lane_index() == 0) partial[warp_index()] = x;
  __syncthreads();
  x = combine_warp(lane_index() < static_cast<int>(blockDim.x) / kWarpSize ? partial[lane_index()] : neutral);
  __syncthreads();
  return x;
}

template <class T>
__device__ __forceinline__ T block_sum(T x, T* partial) {
  return block_reduce(x, T{0}, partial, [](T value) { return warp_sum(value); });
}

// Ignores NaN.
__device__ __forceinline__ float block_max(float x, float* partial) {
  return block_reduce(x, -INFINITY, partial, [](float value) { return warp_max(value); });
}

// --- the sequences of a step -----------------------------------------------------------------------------
// New tokens are rows [first_row, first_row + n_tokens) of the matrices.
struct Sequence {
  int64_t first_position, first_row, n_tokens;
};

struct StepRow {
  int64_t sequence, position;
};

// Tables in device memory are never kernel arguments: one launch serves every step, so recording pays off.
struct DeviceStep {
  const Sequence* sequences;  // [count], in the order of their rows
  void* const* page_tables;   // [count][pitch]
  int64_t pitch, count;

  __device__ void* const* pages(int64_t sequence) const { return page_tables + sequence * pitch; }
  __device__ void* page(const StepRow& at) const { return pages(at.sequence)[at.position / kKvPage]; }
  // Last sequence that starts at or before the row.
  __device__ StepRow row(int64_t row) const {
    int64_t low = 0, high = count;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (sequences[middle].first_row <= row ? low : high) = middle;
    }
    return {low, sequences[low].first_position + row - sequences[low].first_row};
  }
};

// Explicit positions of an op's rows. axes: null if no sequence has any; rows then use their index.
struct AxisPositions {
  const double* axes = nullptr;       // [sequences][pairs]
  const double* positions = nullptr;  // [rows][3]

  __device__ double at(int64_t sequence, int64_t pairs, int64_t row, int64_t pair) const {
    return positions[3 * row + static_cast<int64_t>(axes[sequence * pairs + pair])];
  }
};

// Appends to `words` the axes of the sequences, and three positions per row.
template <class Rope>
void append_axes(std::span<const Rope> ropes, size_t pairs, std::vector<double>& words) {
  for (const Rope& rope : ropes) {
    for (size_t j = 0; j < pairs; ++j) words.push_back(rope.axes.empty() ? 0.0 : rope.axes[j]);
  }
}
inline void append_positions(std::span<const double> positions, bool axes, const StepSequence& sequence,
                             std::vector<double>& words) {
  constexpr uint8_t kAxes[3] = {0, 1, 2};
  const std::span<const uint8_t> of_pair(kAxes, axes ? 3 : 0);
  for (int64_t i = 0; i < sequence.n_tokens; ++i) {
    for (size_t axis = 0; axis < 3; ++axis)
      words.push_back(position_of(positions, of_pair, i, sequence.first_position + i, axis));
  }
}

template <class T = void>
__device__ __forceinline__ T* in_page(void* page, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(page) + offset);
}

// --- on the host: runtime values to template arguments ---------------------------------------------------
template <class F>
void with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF16:
      return f(Half{});
    case DType::kBF16:
      return f(BFloat16{});
    case DType::kQ8:
    case DType::kQ4:
      throw Error("quantized dtype: only matrix products accept it");  // CudaBackend::multiply
  }
}

template <class T>
T* typed(const Matrix& m) {
  return static_cast<T*>(m.data);
}

inline bool rows_aligned16(const Matrix& m) {
  return reinterpret_cast<uintptr_t>(m.data) % 16 == 0 &&
         (m.rows <= 1 || m.stride * static_cast<int64_t>(size_of(m.dtype)) % 16 == 0);
}

template <class T, int kN>
struct ByValue {
  T value[kN];
};

template <class T, int kN, class Span>
ByValue<T, kN> by_value(const Span& values, size_t first, size_t count) {
  ByValue<T, kN> out = {};
  for (size_t i = 0; i < count; ++i) out.value[i] = static_cast<T>(values[first + i]);
  return out;
}

inline unsigned to_unsigned(int64_t x) { return static_cast<unsigned>(x); }

// Argument of a queued launch, all zero. Queued launches are compared byte by byte, padding included.
template <class T>
T zeroed() {
  static_assert(std::is_trivially_copyable_v<T>);
  T argument;
  std::memset(static_cast<void*>(&argument), 0, sizeof(T));
  return argument;
}

}  // namespace lariat::cuda
