#pragma once
#include "kernels/cuda/device.h"

namespace lariat::cuda {

// x Phi(x) by the formula of Gelu (kernels/cpu/row_ops.cpp). For accuracy in the tail, the rounding error of
// a * a enters as a second factor.
__device__ __forceinline__ float gelu(float x) {
  const float a = fabsf(x) > 15.0F ? 15.0F : fabsf(x);  // exp(-15^2 / 2) is 0; keeps a NaN
  const float u = 4.0F / (a + 4.0F);
  float p = 0.0149936324F;
  p = p * u - 0.0541295113F;
  p = p * u + 0.0311430450F;
  p = p * u + 0.0560126931F;
  p = p * u - 0.0104550653F;
  p = p * u + 0.0992457232F;
  p = p * u + 0.0675812658F;
  p = p * u + 0.0964802240F;
  p = p * u + 0.0993738123F;
  p = p * u + 0.0997541828F;
  const float square = a * a, rounding = fmaf(a, a, -square);
  const float tail = expf(-0.5F * square) * (1.0F - 0.5F * rounding) * (u * p);
  return x * (x < 0.0F ? tail : 1.0F - tail);
}

// Formulas: Activated (kernels/cpu/row_ops.cpp).
__device__ __forceinline__ float activated(float x, Activation activation) {
  if (activation == Activation::kGelu) return gelu(x);
  if (activation == Activation::kRelu2) return x < 0.0F ? 0.0F : x * x;
  const float z = activation == Activation::kSilu ? x : x * (1.59576912F + 1.59576912F * 0.044715F * (x * x));
  return x / (1.0F + expf(-z));
}

}  // namespace lariat::cuda
