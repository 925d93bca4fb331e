#pragma once
#include "kernels/cuda/device.h"

// Activations are f32, or bf16 for products that read bf16 (Weight::input).
namespace lariat::cuda {

// Stores four adjacent values to an aligned address.
template <class T>
__device__ __forceinline__ void store4(T* to, float4 v) {
  if constexpr (std::is_same_v<T, float>) {
    *reinterpret_cast<float4*>(to) = v;
  } else {
    *reinterpret_cast<uint2*>(to) = {pack2<T>(v.x, v.y), pack2<T>(v.z, v.w)};
  }
}

template <class F>
void with_output_dtype(DType dtype, F&& f) {
  return dtype == DType::kBF16 ? f(BFloat16{}) : f(float{});
}

}  // namespace lariat::cuda
