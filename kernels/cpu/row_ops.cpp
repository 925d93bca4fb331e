#include <cmath>
#include <limits>

#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/glu.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_ops.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::HWY_NAMESPACE {

// squares: sum of the squares of x, unused by a centred norm.
template <typename T>
HWY_INLINE void NormRow(const float* x, float squares, const Norm& norm, const T* weight, size_t n,
                        float* out) {
  if (norm.centred) {
    LayerNormRow(x, weight, n, norm.eps, out);
  } else {
    ScaleRow(x, weight, n, NormFactor(squares, n, norm.eps), out);
  }
  if (norm.bias) AddBias(out, norm.bias, n);
}

void NormRows(const Matrix& x, const Norm& norm, const Matrix& out, int64_t first, int64_t last) {
  const auto n = static_cast<size_t>(x.cols);
  WithDType(norm.weight.data, norm.weight.dtype, [&](const auto* w) HWY_ATTR {
    for (int64_t t = first; t < last; ++t) {
      const float* row = x.f32(t);
      NormRow(row, norm.centred ? 0.0F : SumOfSquares(row, n), norm, w, n, out.f32(t));
    }
  });
}

void AddNormRows(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                 const Matrix& out, int64_t first, int64_t last) {
  const auto n = static_cast<size_t>(residual.cols);
  const auto add = [&](int64_t t)
                       HWY_ATTR { return AddSumOfSquares(residual.f32(t), delta.f32(t), scale, n); };
  if (!norm) {
    for (int64_t t = first; t < last; ++t) add(t);
    return;
  }
  WithDType(norm.weight.data, norm.weight.dtype, [&](const auto* w) HWY_ATTR {
    for (int64_t t = first; t < last; ++t) NormRow(residual.f32(t), add(t), norm, w, n, out.f32(t));
  });
}

// x / (1 + exp(-z)). exp(-z) is capped: for z < -88 the error is less than 1e-35.
HWY_INLINE VF32 TimesLogistic(VF32 x, VF32 z) {
  const F32 d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), Exp(hn::Min(hn::Set(d, 88.0F), hn::Neg(z)))));
}

// x Phi(x), with Phi of the normal distribution. With a = |x| and u = 4 / (a + 4),
//   Phi(-a) = exp(-a^2 / 2) u p(u):
// Abramowitz and Stegun 26.2.17, with a p of degree 9 that interpolates at the Chebyshev nodes of a in
// [0, 13.5] (relative error 1.2e-8; beyond, Phi(-a) underflows f32). For accuracy in the tail, a^2 is h^2 +
// (a - h) (a + h), where the square of h is exact.
HWY_INLINE VF32 Gelu(VF32 x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const VF32 one = hn::Set(d, 1.0F), half = hn::Set(d, -0.5F), most = hn::Set(d, 15.0F);
  const VF32 a = hn::IfThenElse(hn::Gt(hn::Abs(x), most), most, hn::Abs(x));  // keeps a NaN
  const VF32 u = hn::Div(hn::Set(d, 4.0F), hn::Add(a, hn::Set(d, 4.0F)));
  VF32 p = hn::Set(d, 0.0149936324F);
  for (const float c : {-0.0541295113F, 0.0311430450F, 0.0560126931F, -0.0104550653F, 0.0992457232F,
                        0.0675812658F, 0.0964802240F, 0.0993738123F, 0.0997541828F}) {
    p = hn::MulAdd(p, u, hn::Set(d, c));
  }
  const VF32 h = hn::BitCast(d, hn::And(hn::BitCast(du, a), hn::Set(du, 0xfffff000U)));
  const VF32 power =
      hn::Mul(Exp(hn::Mul(half, hn::Mul(h, h))), Exp(hn::Mul(half, hn::Mul(hn::Sub(a, h), hn::Add(a, h)))));
  const VF32 tail = hn::Mul(power, hn::Mul(u, p));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)));
}

// SiLU: z = x. GELU with tanh: (1 + tanh(v)) / 2 = 1 / (1 + exp(-2 v)), z = 2 v, v = sqrt(2 / pi) (x +
// 0.044715 x^3).
HWY_INLINE VF32 Activated(VF32 x, Activation activation) {
  const F32 d;
  if (activation == Activation::kSilu) return TimesLogistic(x, x);
  if (activation == Activation::kGelu) return Gelu(x);
  if (activation == Activation::kRelu2) {
    const VF32 kept = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // keeps a NaN
    return hn::Mul(kept, kept);
  }
  const VF32 slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 1.59576912F * 0.044715F), hn::Set(d, 1.59576912F));
  return TimesLogistic(x, hn::Mul(x, slope));
}

// kClamped; keeps a NaN.
HWY_INLINE VF32 Clamped(VF32 gate, VF32 up) {
  const F32 d;
  const VF32 limit = hn::Set(d, kClampedLimit), most = hn::IfThenElse(hn::Gt(gate, limit), limit, gate);
  const VF32 within = hn::IfThenElse(hn::Gt(hn::Abs(up), limit), hn::CopySign(limit, up), up);
  const VF32 active = TimesLogistic(most, hn::Mul(most, hn::Set(d, kClampedSlope)));
  return hn::Mul(active, hn::Add(within, hn::Set(d, 1.0F)));
}

void GluRow(const float* gate, const float* up, size_t n, Activation activation, float* out) {
  ForVectors(n, [&](size_t i, size_t count) LARIAT_INLINE_BODY {
    if (activation == Activation::kClamped)
      return StoreUpTo(Clamped(LoadUpTo(gate + i, count), LoadUpTo(up + i, count)), out + i, count);
    const VF32 active = Activated(LoadUpTo(gate + i, count), activation);
    StoreUpTo(up == nullptr ? active : hn::Mul(active, LoadUpTo(up + i, count)), out + i, count);
  });
}

// exp(x) - 1 for x <= 0, within some 3 ulp: near 0 by Taylor's polynomial, since exp(x) is rounded near 1.
HWY_INLINE VF32 ExpMinusOne(VF32 x) {
  const F32 d;
  VF32 p = hn::Set(d, 1.0F / 40320);
  for (const float c : {1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F})
    p = hn::MulAdd(p, x, hn::Set(d, c));
  const VF32 far = hn::Sub(Exp(x), hn::Set(d, 1.0F));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -0.5F)), far, hn::Mul(p, x));
}

void XieluRow(float* x, size_t n, const Xielu& parameters) {
  const F32 d;
  const VF32 positive = hn::Set(d, parameters.positive), negative = hn::Set(d, parameters.negative),
             beta = hn::Set(d, parameters.beta), eps = hn::Set(d, parameters.eps);
  ForVectors(n, [&](size_t i, size_t count) LARIAT_INLINE_BODY {
    const VF32 value = LoadUpTo(x + i, count), linear = hn::Mul(beta, value);
    const VF32 least = hn::IfThenElse(hn::Gt(value, eps), eps, value);  // keeps a NaN
    const VF32 left = hn::MulAdd(negative, hn::Sub(ExpMinusOne(least), value), linear);
    const VF32 right = hn::MulAdd(hn::Mul(positive, value), value, linear);
    StoreUpTo(hn::IfThenElse(hn::Gt(value, hn::Zero(d)), right, left), x + i, count);
  });
}

void SoftCapRow(float* x, size_t n, float scale, float cap) {
  const F32 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const VF32 value = hn::Mul(LoadUpTo(x + i, n - i), hn::Set(d, scale));
    StoreUpTo(cap > 0.0F ? SoftCap(value, cap) : value, x + i, n - i);
  }
}

// Ignores NaN; -inf for only NaN. Highway's Max treats NaN differently on each instruction set.
HWY_INLINE float MaxOfRow(const float* x, size_t n) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto larger = [](VF32 value, VF32 best)
                          HWY_ATTR { return hn::IfThenElse(hn::Gt(value, best), value, best); };
  VF32 best0 = hn::Set(d, -std::numeric_limits<float>::infinity()), best1 = best0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    best0 = larger(hn::LoadU(d, x + i), best0);
    best1 = larger(hn::LoadU(d, x + i + lanes), best1);
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, hn::Max(best0, best1)));
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

int32_t ArgmaxRow(const float* x, size_t n) {
  const F32 d;
  const float largest = MaxOfRow(x, n);
  const VF32 wanted = hn::Set(d, largest);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), wanted));
    if (lane >= 0) return static_cast<int32_t>(i) + static_cast<int32_t>(lane);
  }
  for (; i < n; ++i) {
    if (x[i] == largest) return static_cast<int32_t>(i);
  }
  return 0;  // only NaN
}

// Terms are f32, the sum is double.
double SumExp(const float* x, size_t n, float largest) {
  const F32 d;
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const size_t lanes = hn::Lanes(d);
  const VF32 shift = hn::Set(d, largest);
  HWY_ALIGN float terms[hn::MaxLanes(F32())];
  auto sum = hn::Zero(d64);
  const auto accumulate = [&]() HWY_ATTR {
    for (size_t i = 0; i < lanes; i += hn::Lanes(d64)) {
      sum = hn::Add(sum, hn::PromoteTo(d64, hn::LoadU(d32, terms + i)));
    }
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::Store(Exp(hn::Sub(hn::LoadU(d, x + i), shift)), d, terms);
    accumulate();
  }
  if (i < n) {
    const VF32 tail = Exp(hn::Sub(LoadTailF32(d, x + i, n - i), shift));
    hn::Store(hn::IfThenElseZero(hn::FirstN(d, n - i), tail), d, terms);
    accumulate();
  }
  return hn::GetLane(hn::SumOfLanes(d64, sum));
}

double NllRow(const float* logits, size_t n, int32_t target) {
  const float largest = MaxOfRow(logits, n);
  return static_cast<double>(largest) + std::log(SumExp(logits, n, largest)) -
         static_cast<double>(logits[target]);
}

}  // namespace lariat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat {
HWY_EXPORT(NormRows);
HWY_EXPORT(AddNormRows);
HWY_EXPORT(GluRow);
HWY_EXPORT(XieluRow);
HWY_EXPORT(SoftCapRow);
HWY_EXPORT(ArgmaxRow);
HWY_EXPORT(NllRow);

void CpuBackend::embed(std::span<const int32_t> tokens, const HostWeight& table, float scale,
                       const Matrix& out) {
  const auto n = static_cast<int64_t>(tokens.size());
  for_ranges(threads_, n, row_grain(out.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      int32_t token = tokens[static_cast<size_t>(t)];
      if (token < 0) token = token_of(drawn_.at(static_cast<size_t>(-1 - token)));
      const Matrix row = out.row_range(t, 1);
      if (table.read_row) {
        read_floats(table, token, row);
      } else if (is_quantized(table.m.dtype)) {
        cpu::dequantize(table.m, token, 0, row);
      } else {
        cpu::convert_rows(table.m.row_range(token, 1), row);
      }
      if (scale != 1.0F)
        HWY_DYNAMIC_DISPATCH(SoftCapRow)(out.f32(t), static_cast<size_t>(out.cols), scale, 0.0F);
    }
  });
}

void CpuBackend::norm(const Matrix& x, const Norm& norm, const Matrix& out) {
  for_ranges(threads_, x.rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(NormRows)(x, norm, out, first, last);
  });
}

void CpuBackend::add_norm(const Matrix& residual, const Matrix& delta, float scale, const Norm& norm,
                          const Matrix& out) {
  for_ranges(threads_, residual.rows, row_grain(residual.cols), [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(AddNormRows)(residual, delta, scale, norm, out, first, last);
  });
}

void cpu::glu_values(const float* gate, const float* up, size_t n, Activation activation, float* out) {
  HWY_DYNAMIC_DISPATCH(GluRow)(gate, up, n, activation, out);
}

void CpuBackend::glu(const Matrix& gate, const Matrix& up, Activation activation, const Matrix& out) {
  for_ranges(threads_, gate.rows, row_grain(gate.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      cpu::glu_values(gate.f32(t), up ? up.f32(t) : nullptr, static_cast<size_t>(gate.cols), activation,
                      out.f32(t));
    }
  });
}

void CpuBackend::xielu(const Matrix& x, const Xielu& parameters) {
  for_ranges(threads_, x.rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t)
      HWY_DYNAMIC_DISPATCH(XieluRow)(x.f32(t), static_cast<size_t>(x.cols), parameters);
  });
}

void CpuBackend::soft_cap(const Matrix& x, float scale, float cap) {
  for_ranges(threads_, x.rows, row_grain(x.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      HWY_DYNAMIC_DISPATCH(SoftCapRow)(x.f32(t), static_cast<size_t>(x.cols), scale, cap);
    }
  });
}

void CpuBackend::find_largest(const Matrix& logits, std::span<int32_t> ids) {
  for_ranges(threads_, logits.rows, row_grain(logits.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      ids[static_cast<size_t>(t)] =
          HWY_DYNAMIC_DISPATCH(ArgmaxRow)(logits.f32(t), static_cast<size_t>(logits.cols));
    }
  });
}

void CpuBackend::token_nll(const Matrix& logits, std::span<const int32_t> targets, std::span<double> nll) {
  for_ranges(threads_, logits.rows, row_grain(logits.cols), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const auto token = static_cast<size_t>(t);
      nll[token] =
          HWY_DYNAMIC_DISPATCH(NllRow)(logits.f32(t), static_cast<size_t>(logits.cols), targets[token]);
    }
  });
}

}  // namespace lariat
#endif  // HWY_ONCE
